"""Whatever arrives, all requests end, tokens and pages are conserved, and the same inputs give the same plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.journal import replay
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput
from pliant.packing.scheduling.safety import BOUNDS
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures.packing.samples import Scene, play, policies, prompt, scene, seeds

every_policy = pytest.mark.parametrize("policy", POLICIES)


def fresh(scene: Scene, policy: str, **rest) -> PackingScheduler:
    return PackingScheduler(scene.rules(policy, **rest), scene.memory)


@given(seeds, policies)
def test_every_prompt_ends_with_its_tokens_or_is_dropped_late(seed, policy):
    load = scene(seed)
    device, _ = play(load, fresh(load, policy))
    assert device.ended.keys() == load.lengths.keys()
    for request in load.prompts:
        if device.ended[request.id] == "finished":
            assert device.made[request.id] == load.lengths[request.id]
        else:
            assert device.ended[request.id] == "late" and request.deadline < np.inf


@given(seeds, policies)
def test_the_same_rounds_give_the_same_decisions(seed, policy):
    load = scene(seed)
    _, journal = play(load, fresh(load, policy))
    assert replay(fresh(load, policy), journal) == journal


@given(seeds, policies, st.data())
def test_anybody_can_be_cancelled_at_any_time_and_then_holds_nothing(seed, policy, data):
    load = scene(seed, deadlines=0.1, least=4)
    ids = st.lists(st.sampled_from(sorted(load.lengths)), max_size=4)
    cancels = data.draw(st.dictionaries(st.integers(0, 40), ids, max_size=8))
    scheduler = fresh(load, policy)
    device, journal = play(load, scheduler, cancels)
    assert scheduler.pages_used == scheduler.host_used == scheduler.waiting == scheduler.running == 0
    cancelled = {id for _, step_input, _ in journal for id in step_input.cancelled}
    assert {id for id, how in device.ended.items() if how == "cancelled"} <= cancelled


@given(seeds)
def test_nobody_is_dropped_before_the_deadline_and_nobody_kept_after_it(seed):
    load = scene(seed, deadlines=1.0)
    _, journal = play(load, fresh(load, "default"))
    deadlines = {request.id: request.deadline for request in load.prompts}
    alive = set()
    for now, step_input, plan in journal:
        alive = (alive | {request.id for request in step_input.arrived}) - set(step_input.finished)
        assert {id for id, _ in plan.dropped} == {id for id in alive if deadlines[id] < now}
        alive -= {id for id, _ in plan.dropped}


@every_policy
def test_a_prompt_is_not_late_at_its_deadline_but_right_after(policy):
    scheduler = PackingScheduler(Rules(policy, 64), Memory(8, 4))
    request = prompt(1, deadline=2.0, exact=8)
    assert scheduler.handle(StepInput((request,)), 2.0).admitted == (1,)
    assert scheduler.handle(StepInput(), np.nextafter(2.0, 3.0)).dropped == ((1, "late"),)
    assert scheduler.running == scheduler.pages_used == 0


def test_an_id_that_came_again_is_not_dropped_at_the_deadline_of_the_one_before():
    """An id may come again after its first prompt has ended, whose deadline the heap still holds."""
    scheduler = PackingScheduler(Rules("default", 64), Memory(8, 4))
    scheduler.handle(StepInput((prompt(1, deadline=1.0),)), 0.0)
    scheduler.handle(StepInput((prompt(1, arrival=0.5),), finished=(1,)), 0.5)
    assert scheduler.handle(StepInput(), 1.5).dropped == ()
    assert scheduler.running == 1


def test_when_all_that_ran_were_late_the_next_in_line_runs_at_once():
    """Admission runs every sixteenth iteration, but an unused device must not wait for it."""
    scheduler = PackingScheduler(Rules("orca", 16), Memory(4, 4))
    scheduler.handle(StepInput((prompt(1, 4, 12, deadline=1.0), prompt(2, 4, 12))), 0.0)
    assert scheduler.running == scheduler.waiting == 1
    plan = scheduler.handle(StepInput(), 1.5)
    assert plan.dropped == ((1, "late"),) and plan.admitted == (2,)


@every_policy
def test_a_sequence_that_is_finished_and_cancelled_in_one_round_ends_once(policy):
    scheduler = PackingScheduler(Rules(policy, 64), Memory(20, 4))
    scheduler.handle(StepInput((prompt(1, exact=1), prompt(2, exact=4))), 0.0)
    scheduler.handle(StepInput((), (1,), (1, 1, 7)), 0.1)
    scheduler.check()
    assert scheduler.running == 1 and scheduler.pages_of(1) == 0


def test_who_is_cancelled_on_the_host_gives_its_pages_back_there():
    scheduler = PackingScheduler(Rules("paged", 16), Memory(4, 4, host_pages=4))
    scheduler.handle(StepInput((prompt(1, 4, 12), prompt(2, 4, 12))), 0.0)
    gone: tuple[int, ...] = ()
    while not gone:
        gone = scheduler.handle(StepInput(), 0.1).offloaded
    assert gone == (2,) and scheduler.host_used > 0
    scheduler.handle(StepInput(cancelled=(2,)), 0.2)
    scheduler.check()
    assert scheduler.host_used == 0 and scheduler.waiting == 0


def test_where_the_host_is_full_the_pages_are_given_up_and_read_again():
    scheduler = PackingScheduler(Rules("paged", 16), Memory(4, 4, host_pages=1))
    scheduler.handle(StepInput((prompt(1, 4, 12), prompt(2, 4, 12))), 0.0)
    gone: tuple[int, ...] = ()
    while not gone:
        plan = scheduler.handle(StepInput(), 0.1)
        gone = plan.discarded
        assert not plan.offloaded
    assert scheduler.discarded == 8 and scheduler.host_used == 0


WRONG = {
    "no tokens": {"tokens": 0},
    "no output": {"limit": 0},
    "beyond the context": {"limit": 61},
    "a forecast of nothing": {"forecast": (float("nan"),) * 8},
    "an endless forecast": {"forecast": (1.0,) * 7 + (float("inf"),)},
    "a forecast at other levels": {"forecast": (1.0,) * 7},
    "an arrival at no time": {"arrival": float("nan")},
    "a deadline at no time": {"deadline": float("nan")},
    "no utility": {"utility": float("nan")},
    "a negative utility": {"utility": -1.0},
    "an endless utility": {"utility": float("inf")},
    "a negative class": {"bucket": -1},
    "a negative id": {"id": -3},
    "an id that waits": {"id": 2},
    "an id that runs": {"id": 1},
}


def busy(policy: str) -> PackingScheduler:
    """1 and 5 run; 2 came later."""
    scheduler = PackingScheduler(Rules(policy, 64), Memory(16, 4, step_tokens=4))
    scheduler.handle(StepInput((prompt(1, 4, 28, exact=28), prompt(5, 4, 4, exact=4))), 0.0)
    scheduler.handle(StepInput(), 0.05)
    scheduler.handle(StepInput((prompt(2, 4, 60, exact=60),)), 0.1)
    return scheduler


@every_policy
@pytest.mark.parametrize("wrong", WRONG)
def test_a_round_with_a_refused_prompt_changes_nothing(policy, wrong):
    scheduler, other = busy(policy), busy(policy)
    refused = replace(prompt(3, exact=5), **WRONG[wrong])
    running = scheduler.running
    with pytest.raises(InputError):
        scheduler.handle(StepInput((prompt(4, exact=5), refused), (5,)), 0.2)
    scheduler.check()
    assert scheduler.running == running
    for now in (0.2, 0.3, 0.4):
        assert scheduler.handle(StepInput(), now) == other.handle(StepInput(), now)


def test_a_length_beyond_the_limit_does_not_keep_the_oracle_waiting_for_ever():
    """Once more was reserved for it than the cache has, and it never ran."""
    scheduler = PackingScheduler(Rules("oracle", 64), Memory(3, 4))
    assert scheduler.handle(StepInput((prompt(1, 4, 8, exact=60),)), 0.0).admitted == (1,)


@every_policy
def test_a_prompt_that_fills_the_cache_to_its_last_page_runs_alone_to_its_end(policy):
    load = Scene(64, Memory(16, 4), (prompt(0, 4, 60, exact=60), prompt(1, 4, 60, exact=60)), {0: 60, 1: 60})
    device, _ = play(load, fresh(load, policy))
    assert device.made == {0: 60, 1: 60}


@every_policy
@pytest.mark.parametrize("narrow", [{"step_tokens": 1}, {"sequences": 1}])
def test_one_query_or_one_sequence_an_iteration_is_enough(policy, narrow):
    prompts = tuple(prompt(id, 30, 8, exact=5) for id in range(4))
    load = Scene(64, Memory(40, 4, **narrow), prompts, dict.fromkeys(range(4), 5))
    device, journal = play(load, fresh(load, policy))
    assert set(device.ended.values()) == {"finished"}
    assert max(len(plan.admitted) for _, _, plan in journal) == 1


def test_a_long_prompt_is_read_in_pieces_while_the_others_go_on():
    scheduler = PackingScheduler(Rules("default", 512), Memory(200, 4, step_tokens=8))
    scheduler.handle(StepInput((prompt(1, 4, 40),)), 0.0)
    scheduler.handle(StepInput((prompt(2, 300, 40),)), 0.1)
    chunks = [scheduler.handle(StepInput(), 0.1 * i).prefill_chunks for i in range(2, 20)]
    assert all(len(each) == 1 and each[0].id == 2 and each[0].tokens == 7 for each in chunks)


def test_a_long_request_among_short_ones_that_never_cease_is_served_under_default():
    """By shortest first alone it would wait for as long as short ones arrive."""
    short = [prompt(id, 4, 8, 4.0, arrival=0.3 * id, exact=4) for id in range(1, 400)]
    long = Prompt(0, 0.0, 20, 40, (40.0,) * 8, exact=40)
    load = Scene(64, Memory(16, 4), (long, *short), {request.id: request.exact for request in (long, *short)})
    _, journal = play(load, fresh(load, "default", reorder_patience=0.5))
    ended = next(now for now, step_input, _ in journal if 0 in step_input.finished)
    assert ended < short[-1].arrival / 2


def test_an_offline_batch_waits_behind_all_others_and_goes_longest_first():
    offline = [prompt(id, 4, 24, float(id), offline=True) for id in range(1, 7)]
    online = [prompt(id, 4, 24, 20.0) for id in range(10, 14)]
    scheduler = PackingScheduler(Rules("default", 28), Memory(7, 4))
    order, finished = [], ()
    for at in range(200):
        plan = scheduler.handle(StepInput((*offline, *online) if at == 0 else (), finished), 0.1 * at)
        order += plan.admitted
        finished = tuple(plan.admitted)
    assert order == [10, 11, 12, 13, 6, 5, 4, 3, 2, 1]


def test_of_those_that_run_the_offline_ones_are_preempted_first():
    """Their keys are negative sizes, which once compared as earlier than any time of arrival."""
    scheduler = PackingScheduler(Rules("default", 64, safety=0.0), Memory(16, 4))
    scheduler.handle(StepInput((prompt(1, 4, 60, 2.0, offline=True),)), 5.0)
    scheduler.handle(StepInput((prompt(2, 4, 60, 2.0, arrival=5.1),)), 5.1)
    assert scheduler.running == 2
    gone: tuple[int, ...] = ()
    while not gone:
        gone = scheduler.handle(StepInput(), 6.0).discarded
    assert gone == (1,)


@pytest.mark.parametrize("bound", BOUNDS)
@given(seed=seeds)
def test_the_level_stays_within_its_bounds_wherever_it_begins(bound, seed):
    load = scene(seed)
    scheduler = fresh(load, "default", safety=bound, preemption_target=5.0)
    play(load, scheduler)
    assert BOUNDS[0] <= scheduler.safety <= BOUNDS[1]


def test_a_tenants_long_waits_reorder_nobody_elses_requests():
    """While one tenant waits for minutes, a large request of another is not put back by minutes behind its small ones."""

    def first_admitted(tenant: str) -> int:
        scheduler = PackingScheduler(Rules("default", 64), Memory(16, 4, 0, 64, 1))
        flood = [prompt(id, arrival=100.0 * (id - 1), tenant="flood") for id in range(1, 31)]
        scheduler.handle(StepInput((prompt(0, tenant="ann"), flood[0])), 0.0)
        for now in range(1, 30):  # each of the flood's texts has waited for 100 s, and the next one waits
            came = StepInput((flood[now],), (now - 1,))
            assert scheduler.handle(came, 100.0 * now).admitted == (now,)
        pair = (
            prompt(50, arrival=2900.0, limit=40, forecast=40.0, tenant=tenant),
            prompt(51, arrival=2901.0, tenant=tenant),
        )
        scheduler.handle(StepInput(pair), 2901.0)
        (admitted,) = scheduler.handle(StepInput((), (29,), (30,)), 2902.0).admitted
        return admitted

    assert first_admitted("ann") == 50, "in the order in which they came"
    assert first_admitted("flood") == 51, "its own small one goes first"
