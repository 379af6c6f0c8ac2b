"""Whatever arrives or an engine does otherwise, all requests end, pages are conserved, and equal inputs give equal plans."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.journal import decode, encode, replay
from pliant.packing.scheduling.policies import size
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import FOREVER, Chunk, Correction, Memory, Prompt, StepInput, StepPlan, validate
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures.packing.samples import SECONDS, Device, Scene, compare, play, policies, prompt, scene, seeds

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


WRONG = {
    "beyond the context": {"limit": 61},
    "a deadline at no time": {"deadline": float("nan")},
    "an id that waits": {"id": 2},
    "an id that runs": {"id": 1},
}
"""Of each place that refuses: what else a prompt may not have is that of `validate`."""


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


def full_of_two(host_pages: int, **rules) -> PackingScheduler:
    """Two sequences that grow until four pages of four tokens are too few."""
    scheduler = PackingScheduler(Rules("paged", 16, **rules), Memory(4, 4, host_pages=host_pages))
    scheduler.handle(StepInput((prompt(1, 4, 12), prompt(2, 4, 12))), 0.0)
    return scheduler


def until_preempted(scheduler: PackingScheduler) -> StepPlan:
    for _ in range(20):
        plan = scheduler.handle(StepInput(), 0.1)
        if plan.offloaded or plan.discarded:
            return plan
    raise AssertionError("nobody was preempted")


def test_what_is_given_up_is_counted_in_tokens_raises_the_safety_and_is_read_again_as_soon_as_there_is_room():
    scheduler = full_of_two(host_pages=0, safety=1.0, preemption_target=0.5)
    assert until_preempted(scheduler) == StepPlan(discarded=(2,))
    assert (scheduler.discarded, scheduler.swapped, scheduler.restored, scheduler.host_used) == (8, 0, 0, 0)
    assert scheduler.safety == pytest.approx(1.1)
    assert (scheduler.running, scheduler.waiting, scheduler.pages_of(1), scheduler.pages_of(2)) == (1, 1, 3, 0)
    assert scheduler.generating() == {1} and scheduler.cached_tokens() == scheduler.pages_used * 4 - 3 == 9
    # Prompt and output are one text to read; the one before has ended while it waited, which lowers the safety again.
    again = scheduler.handle(StepInput(finished=(1,)), 0.2)
    assert again == StepPlan(admitted=(2,), prefill_chunks=(Chunk(2, 9),))
    assert scheduler.safety == pytest.approx(1.1 - 0.1 * 0.5)
    assert (scheduler.discarded, scheduler.swapped, scheduler.restored, scheduler.host_used) == (8, 0, 0, 0)
    scheduler.handle(StepInput(finished=(2,)), 0.3)
    assert scheduler.safety == pytest.approx(1.1 - 0.1 * 0.5), "nobody waited, so that nobody was held back"
    assert (scheduler.running, scheduler.waiting, scheduler.pages_used) == (0, 0, 0)


def test_what_goes_to_the_host_comes_back_with_its_pages():
    scheduler = full_of_two(host_pages=2, safety=1.0, preemption_target=0.5)
    assert until_preempted(scheduler) == StepPlan(offloaded=(2,))
    assert (scheduler.discarded, scheduler.swapped, scheduler.restored, scheduler.host_used) == (0, 8, 0, 2)
    assert scheduler.safety == pytest.approx(1.1)
    assert scheduler.handle(StepInput(finished=(1,)), 0.2) == StepPlan(admitted=(2,))
    assert (scheduler.discarded, scheduler.swapped, scheduler.restored, scheduler.host_used) == (0, 8, 8, 0)
    assert scheduler.pages_of(2) == scheduler.pages_used == 3 and scheduler.cached_tokens() == 9


def test_the_safety_ends_at_four_deviations_and_at_two_below_none():
    rising, falling = (full_of_two(0, safety=safety, preemption_target=2.0) for safety in (3.95, -1.85))
    until_preempted(rising)
    assert rising.safety == 4.0
    until_preempted(falling)
    assert falling.safety == pytest.approx(-1.75)
    falling.handle(StepInput(tuple(prompt(id, 4, 12) for id in (3, 4, 5)), (1,)), 0.2)
    assert falling.safety == pytest.approx(-1.95)
    falling.handle(StepInput((), (2,)), 0.3)
    assert falling.safety == -2.0


def test_where_nothing_happens_admission_is_tried_again_after_sixteen_iterations():
    """The first sequence outlives its forecast of fourteen tokens, so that the second may join from then on."""
    stepping, leaping = (PackingScheduler(Rules("default", 64, safety=0.0), Memory(19, 1)) for _ in range(2))
    for scheduler in (stepping, leaping):
        assert scheduler.handle(StepInput((prompt(1, 1, 18, 14.0),)), 0.0).admitted == (1,)
        assert scheduler.handle(StepInput((prompt(2, 1, 14, 14.0, arrival=0.1),)), 0.1).admitted == ()
        assert scheduler.steps_until_decision() == 15
    plans = [stepping.handle(StepInput(), 0.2) for _ in range(16)]
    assert plans == [*[StepPlan()] * 15, StepPlan(admitted=(2,), prefill_chunks=(Chunk(2, 1),))]
    leaping.skip_steps(15)
    assert leaping.steps_until_decision() == 0
    with pytest.raises(AssertionError):
        leaping.skip_steps(1)
    assert leaping.handle(StepInput(), 0.2) == plans[-1]
    assert leaping.cached_tokens() == stepping.cached_tokens() == 18 + 1


def test_a_decision_is_due_when_the_pages_are_full_and_while_a_prompt_is_read():
    scheduler = PackingScheduler(Rules("paged", 64), Memory(10, 4, step_tokens=4))
    assert scheduler.handle(StepInput((prompt(1, 6, 34),)), 0.0).prefill_chunks == (Chunk(1, 4),)
    assert scheduler.generating() == set() and scheduler.cached_tokens() == 4 and scheduler.pages_used == 1
    assert scheduler.steps_until_decision() == 0
    assert scheduler.handle(StepInput(), 0.1).prefill_chunks == (Chunk(1, 2),)
    assert scheduler.generating() == {1} and scheduler.pages_used == 2
    assert scheduler.steps_until_decision() == 34  # 6 of 40 tokens are in the cache
    scheduler.skip_steps(34)
    assert (scheduler.pages_used, scheduler.cached_tokens(), scheduler.steps_until_decision()) == (10, 40, 0)


def test_an_iteration_has_as_many_sequences_as_tokens_to_read():
    for memory in (Memory(40, 4, step_tokens=3, sequences=5), Memory(40, 4, step_tokens=64, sequences=3)):
        scheduler = PackingScheduler(Rules("paged", 64), memory)
        admitted = list(scheduler.handle(StepInput(tuple(prompt(id, 1, 8) for id in range(6))), 0.0).admitted)
        for _ in range(3):
            admitted += scheduler.handle(StepInput(), 0.1).admitted
        assert admitted == [0, 1, 2]
        assert (scheduler.running, scheduler.waiting) == (3, 3)


def test_who_did_not_fit_into_a_full_iteration_is_looked_at_again_in_the_next():
    scheduler = PackingScheduler(Rules("paged", 64), Memory(40, 4, step_tokens=8))
    plans = [scheduler.handle(StepInput(tuple(prompt(id, 6, 8) for id in range(3))), 0.0)]
    plans += [scheduler.handle(StepInput(), 0.1) for _ in range(3)]
    assert plans == [
        StepPlan(admitted=(0, 1), prefill_chunks=(Chunk(0, 6), Chunk(1, 2))),
        StepPlan(admitted=(2,), prefill_chunks=(Chunk(1, 4), Chunk(2, 3))),
        StepPlan(prefill_chunks=(Chunk(2, 3),)),
        StepPlan(),
    ]


def test_the_next_deadline_is_the_earliest_and_all_that_have_passed_are_dropped_at_once():
    scheduler = PackingScheduler(Rules("paged", 16), Memory(4, 4))
    assert scheduler.next_deadline == FOREVER
    waits = (prompt(2, 4, 12, deadline=2.0), prompt(3, 4, 12, deadline=1.0), prompt(4, 4, 12))
    scheduler.handle(StepInput((prompt(1, 4, 12, deadline=1.5), *waits)), 0.0)
    assert scheduler.next_deadline == 1.0
    assert scheduler.handle(StepInput(), 1.75).dropped == ((3, "late"), (1, "late"))
    assert scheduler.next_deadline == 2.0
    assert scheduler.handle(StepInput(), 9.0).dropped == ((2, "late"),)
    assert scheduler.next_deadline == FOREVER and (scheduler.running, scheduler.waiting) == (1, 0)


def test_the_longest_that_the_context_and_the_cache_hold_is_taken_and_one_token_more_is_refused():
    scheduler = PackingScheduler(Rules("paged", 40), Memory(10, 4))
    scheduler.validate(prompt(0, 30, 10))
    with pytest.raises(InputError, match="prompt and max_tokens is 41 tokens, but must be at most the context, 40"):
        scheduler.validate(prompt(0, 30, 11))
    scheduler = PackingScheduler(Rules("paged", 100), Memory(10, 4))
    scheduler.validate(prompt(0, 30, 10))
    with pytest.raises(InputError, match="at most what the cache holds, 40"):
        scheduler.validate(prompt(0, 30, 11))


@pytest.mark.parametrize(("arrival", "admitted"), [(109.0, 11), (111.0, 10)])
def test_a_large_request_is_put_back_by_five_recent_delays_whose_mean_takes_a_fiftieth_of_the_latest(arrival, admitted):
    """The one before has waited for 100 s, so that the recent delay is 2 s. Another waits until both have arrived."""
    scheduler = PackingScheduler(Rules("default", 64, reorder_patience=1.0), Memory(16, 4, 0, 64, 1))
    scheduler.handle(StepInput((prompt(0),)), 0.0)
    scheduler.handle(StepInput((prompt(1, 4, 8, 1.0), prompt(2, 4, 8, 1.0)), (0,)), 100.0)
    large, small = prompt(10, 4, 60, 60.0, arrival=100.0), prompt(11, 1, 1, 1.0, arrival=arrival, utility=1e9)
    scheduler.handle(StepInput((large, small)), 100.0)
    assert scheduler.handle(StepInput((), (1,), (2,)), 112.0).admitted == (admitted,)


@pytest.mark.parametrize(("waits", "admitted"), [(True, 11), (False, 10)])
@pytest.mark.parametrize("offline", [True, False])
def test_delays_are_forgotten_when_nobody_waits_any_more_but_offline_requests(waits, admitted, offline):
    """The one before has waited for 100 s. Then a small request goes before a large one only if another waited still."""
    scheduler = PackingScheduler(Rules("default", 64), Memory(16, 4, 0, 64, 1))
    scheduler.handle(StepInput((prompt(0),)), 0.0)
    others = prompt(1), *([prompt(2)] if waits else []), *([prompt(3, offline=True)] if offline else [])
    scheduler.handle(StepInput(others, (0,)), 100.0)
    pair = prompt(10, 4, 40, 40.0, arrival=100.0), prompt(11, arrival=100.5)
    scheduler.handle(StepInput(pair), 101.0)
    assert scheduler.handle(StepInput((), (1,), (2,) if waits else ()), 102.0).admitted == (admitted,)


@pytest.mark.parametrize(("arrival", "admitted"), [(102.5, 11), (104.5, 10)])
def test_the_typical_size_takes_a_fiftieth_of_the_latest_request(arrival, admitted):
    """After requests of sizes 8 and 396 it is nearly 16, and after another of 16 as much; one of twice that is put back by
    twice the delay of 2 s.
    """
    scheduler = PackingScheduler(Rules("default", 256, reorder_patience=1.0), Memory(64, 4, 0, 512, 1))
    scheduler.handle(StepInput((prompt(0, 3, 2, 2.0),)), 0.0)
    scheduler.handle(StepInput((prompt(1, 197, 2, 2.0), prompt(2, 7, 2, 2.0)), (0,)), 100.0)
    assert size(prompt(0, 3), (2.0,) * 8) == 8 and size(prompt(1, 197), (2.0,) * 8) == 396
    typical = 8 + 0.02 * (396 - 8)
    tokens = round(typical) - 1  # a request of about twice the typical size
    small = prompt(11, 1, 1, 1.0, arrival=arrival, utility=1e9)
    scheduler.handle(StepInput((prompt(10, tokens, 2, 2.0, arrival=100.0), small)), 105.0)
    assert scheduler.handle(StepInput((), (1,), (2,)), 106.0).admitted == (admitted,)


def test_who_comes_back_keeps_its_turn_so_that_who_was_admitted_meanwhile_goes_before():
    scheduler = full_of_two(host_pages=4)
    assert until_preempted(scheduler).offloaded == (2,)
    plan = scheduler.handle(StepInput((prompt(3, 4, 12, arrival=-1.0),), (1,)), 0.2)
    assert plan == StepPlan(admitted=(3, 2), prefill_chunks=(Chunk(3, 4),))
    assert until_preempted(scheduler).offloaded == (3,)


def willful(load: Scene, scheduler: PackingScheduler, rng: np.random.Generator):
    """Play a scene on a device that now and then undoes what a sequence did in an iteration, and reports it."""
    device, journal, coming = Device(load.memory), [], sorted(load.prompts, key=lambda each: each.arrival)
    finished, corrected, now = (), (), coming[0].arrival
    while coming or device.waiting or device.running:
        arrived = tuple(each for each in coming if each.arrival <= now)
        coming = coming[len(arrived) :]
        step_input = StepInput(arrived, finished, (), corrected)
        plan = scheduler.handle(step_input, now)
        journal.append((now, step_input, plan))
        makers = device.carry_out(step_input, plan)
        compare(scheduler, device)
        corrected = tuple(_undo(device, plan, rng)) if rng.random() < 0.3 else ()
        undone = {correction.id for correction in corrected}
        finished = tuple(id for id in makers if id not in undone and device.running[id].made == load.lengths[id])
        now += SECONDS
        assert len(journal) < 20_000, "no end of it"
    scheduler.check()
    return device, journal


def _undo(device: Device, plan, rng: np.random.Generator):
    """Take back what one sequence did: it was left out, or read fewer tokens than it should."""
    able = [id for id, held in device.running.items() if id not in plan.stalled]
    if not able:
        return
    id = int(rng.choice(able))
    held, chunks = device.running[id], {chunk.id: chunk.tokens for chunk in plan.prefill_chunks}
    undone = int(rng.integers(1, chunks.get(id, 1) + 1))
    made = held.made - (not held.unread)
    held.unread = held.unread + undone if id in chunks else 0
    held.cached, held.made = held.cached - undone, made
    yield Correction(id, held.cached, held.unread, held.made)


@given(seeds, policies)
def test_whatever_an_engine_leaves_out_every_prompt_ends_and_the_books_balance(seed, policy):
    load = scene(seed)
    device, journal = willful(load, PackingScheduler(load.rules(policy), load.memory), np.random.default_rng(seed))
    assert device.ended.keys() == load.lengths.keys()
    assert replay(PackingScheduler(load.rules(policy), load.memory), journal) == journal
    assert [decode(encode(*entry)) for entry in journal] == journal


def test_pages_that_the_engine_shares_count_once():
    """The engine cannot have evicted them: the second sequence found them where the books had given them up."""
    scheduler = PackingScheduler(Rules("default", 64), Memory(64, 4))
    scheduler.handle(StepInput((prompt(1, 13, 20, exact=9, beginnings=(11, 12, 13)),)), 0.0)
    alone = scheduler.pages_used
    scheduler.handle(StepInput((prompt(2, 13, 20, exact=9, beginnings=(11, 12, 13)),)), 0.1)
    scheduler.handle(StepInput(corrected=(Correction(2, 13, 0, 1),)), 0.2)
    scheduler.check()
    assert scheduler.pages_used == alone + 1
    scheduler.handle(StepInput(cancelled=(1, 2)), 0.4)
    scheduler.check()
    assert scheduler.pages_used == 0


def test_what_the_engine_had_read_already_is_not_read_again():
    scheduler = PackingScheduler(Rules("default", 64), Memory(64, 4, step_tokens=4))
    plan = scheduler.handle(StepInput((prompt(1, 13, 20, beginnings=(11, 12, 13)),)), 0.0)
    assert plan.prefill_chunks[0].tokens == 4
    plan = scheduler.handle(StepInput(corrected=(Correction(1, 12, 1, 0),)), 0.1)
    assert plan.prefill_chunks[0].tokens == 1
    scheduler.check()
    assert scheduler.pages_of(1) == 4


@pytest.mark.parametrize(
    "wrong", [Correction(7, 4, 0, 1), Correction(1, 6, 0, 1), Correction(1, -1, 0, 1), Correction(1, 2, 4, 1)]
)
def test_a_correction_that_cannot_be_changes_nothing(wrong):
    scheduler, other = (PackingScheduler(Rules("paged", 64), Memory(16, 4)) for _ in range(2))
    for each in (scheduler, other):
        each.handle(StepInput((prompt(1, 4, 20),)), 0.0)
    with pytest.raises(InputError):
        scheduler.handle(StepInput(corrected=(wrong,)), 0.1)
    scheduler.check()
    assert scheduler.handle(StepInput(), 0.1) == other.handle(StepInput(), 0.1)


PROMPT = Prompt(3, 0.0, 5, 7, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"id": 0},
        {"tokens": 1},
        {"limit": 1},
        {"arrival": -1e9},
        {"deadline": inf},
        {"deadline": -inf},
        {"utility": 0.0},
        {"utility": 1e300},
        {"bucket": 0},
        {"weight": 1e-9},
    ],
)
def test_a_prompt_at_its_limits_is_taken(changes):
    validate(replace(PROMPT, **changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"id": -1}, "id is -1, but must be at least 0"),
        ({"tokens": 0}, "prompt is 0 tokens, but must be at least 1 token"),
        ({"limit": 0}, "max_tokens is 0, but must be at least 1"),
        ({"arrival": inf}, "arrival is inf, but must be finite"),
        ({"arrival": nan}, "arrival is nan, but must be finite"),
        ({"deadline": nan}, "deadline is nan, but must be a number of seconds"),
        ({"utility": -0.1}, "utility is -0.1, but must be at least 0 and finite"),
        ({"utility": inf}, "utility is inf, but must be at least 0 and finite"),
        ({"utility": nan}, "utility is nan, but must be at least 0 and finite"),
        ({"bucket": -1}, "bucket is -1, but must be at least 0"),
        ({"weight": 0.0}, "weight is 0.0, but must be above 0 and finite"),
        ({"ttft": 0.0}, "ttft is 0.0, but must be .*"),
        ({"tpot": nan}, "tpot is nan, but must be .*"),
        ({"weight": inf}, "weight is inf, but must be above 0 and finite"),
        ({"forecast": (1.0,) * 7}, "forecast is .*, but must be 8 quantiles"),
        ({"forecast": (1.0,) * 9}, "forecast is .*, but must be 8 quantiles"),
        ({"forecast": (1.0,) * 7 + (nan,)}, "forecast is .*, but must be finite"),
    ],
)
def test_a_prompt_beyond_them_is_refused_with_the_field_the_value_and_the_limit(changes, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        validate(replace(PROMPT, **changes))


def test_tokens_fill_whole_pages():
    memory = Memory(pages=4, page_tokens=16)
    assert [memory.need(tokens) for tokens in (0, 1, 15, 16, 17, 32, 33)] == [0, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("field", "least"), [("pages", 1), ("page_tokens", 1), ("host_pages", 0), ("step_tokens", 1), ("sequences", 1)]
)
def test_a_memory_holds_at_least_a_page_of_a_token_and_perhaps_none_on_the_host(field, least):
    given = {"pages": 2, "page_tokens": 2, field: least}
    assert getattr(Memory(**given), field) == least
    with pytest.raises(InputError, match=f"^{field} is {least - 1}, but must be at least {least}$"):
        Memory(**given | {field: least - 1})
