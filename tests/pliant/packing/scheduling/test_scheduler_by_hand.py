"""The scheduler's plans, counts and refusals on small loads, each worked out by hand."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.policies import size
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Chunk, Memory, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures.packing.samples import prompt


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


def test_turnover_preemptions_are_shared_by_as_many_as_run_when_one_finishes():
    rules = Rules("default", 64, safety=1.0, preemption_target=0.0, turnover_preemptions=2.0)
    scheduler = PackingScheduler(rules, Memory(40, 4, sequences=4))
    scheduler.handle(StepInput(tuple(prompt(id) for id in range(4))), 0.0)
    assert (scheduler.running, scheduler.waiting) == (4, 0)
    scheduler.handle(StepInput(finished=(0,)), 0.1)
    assert scheduler.safety == 1.0, "nobody waited"
    scheduler.handle(StepInput((prompt(5), prompt(6))), 0.2)
    assert (scheduler.running, scheduler.waiting) == (4, 1)
    scheduler.handle(StepInput(finished=(1,)), 0.3)
    assert scheduler.safety == pytest.approx(1.0 - 0.1 * 2.0 / 4)


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


def test_where_nobody_has_waited_yet_a_large_request_is_not_put_back():
    scheduler = PackingScheduler(Rules("default", 64), Memory(16, 4, 0, 64, 1))
    pair = prompt(10, 4, 40, 40.0), prompt(11, 1, 1, 1.0, arrival=0.01)
    assert scheduler.handle(StepInput(pair), 0.01).admitted == (10,)


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


def test_offline_requests_and_preempted_ones_that_come_back_are_no_recent_delays():
    """A large request that came first is put back where online ones had to wait."""

    def first_of_two(offline: bool) -> int:
        scheduler = PackingScheduler(Rules("default", 64), Memory(16, 4, 0, 64, 1))
        scheduler.handle(StepInput((prompt(0),)), 0.0)
        scheduler.handle(StepInput((prompt(1, offline=offline), prompt(2, offline=offline, utility=1e9)), (0,)), 1000.0)
        scheduler.handle(StepInput((prompt(3, arrival=1000.0),)), 1000.0)
        pair = prompt(10, 4, 40, 40.0, arrival=1000.0), prompt(11, arrival=1001.0)
        scheduler.handle(StepInput(pair), 1001.0)
        (admitted,) = scheduler.handle(StepInput((), (1,), (2, 3)), 1002.0).admitted
        return admitted

    assert first_of_two(offline=False) == 11
    assert first_of_two(offline=True) == 10


def test_who_comes_back_keeps_its_turn_so_that_who_was_admitted_meanwhile_goes_before():
    scheduler = full_of_two(host_pages=4)
    assert until_preempted(scheduler).offloaded == (2,)
    plan = scheduler.handle(StepInput((prompt(3, 4, 12, arrival=-1.0),), (1,)), 0.2)
    assert plan == StepPlan(admitted=(3, 2), prefill_chunks=(Chunk(3, 4),))
    assert until_preempted(scheduler).offloaded == (3,)
