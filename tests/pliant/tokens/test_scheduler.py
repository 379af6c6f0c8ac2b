"""The scheduler under load, in virtual time: its books balance after every event and every request has one fate."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, Launch, Request, Woke
from pliant.report import observations, report
from pliant.simulate import simulate
from pliant.tokens.artifact import RateRule
from pliant.tokens.batching import BatchingConfig
from pliant.tokens.scheduler import TokensScheduler
from tests.pliant.tokens.loads import ACCURACY, KINDS, TABLE, World, bursty, config, run


def ask(id: int, at: float = 0.0, within: float = 1.0, task: str = "easy", utility: float = 1.0) -> Request:
    return Request(id, at, at + within, task, utility)


def drops(books) -> Counter:
    return Counter(fate.reason for fate in books.fates.values() if isinstance(fate, Drop))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_with_exact_durations_no_answer_is_late(seed, workers):
    _, books = run(bursty(seed), World(seed), workers)
    assert books.late == []
    assert drops(books)["late"] > 0  # the load was too much for one gamma and one worker, or the test proves little


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(("failing", "restarts"), [(0.1, 0.0), (0.3, 0.5), (1.0, 0.9)])
def test_books_balance_while_workers_fail(workers, failing, restarts):
    load = bursty(3, 0.5)
    journal, books = run(load, World(7, failing=failing, failing_restarts=restarts, jitter=0.2), workers)
    tries = Counter(id for launch in books.launches.values() for id in launch.requests)
    assert max(tries.values()) <= config().attempts
    assert any(isinstance(entry.event, Failed) for entry in journal)


requests_ = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda n: n / 20),  # arrivals on a grid, so that many coincide
        st.sampled_from([0.0, 0.005, 0.01, 0.05, 0.2, 3.0]),
        st.sampled_from(["easy", "hard"]),
        st.sampled_from([0.0, 0.3, 1.0, 50.0]),
    ),
    max_size=40,
)


@settings(max_examples=80)
@given(requests_, st.integers(1, 3), st.sampled_from([0.0, 0.3]), st.sampled_from([2, 2048]), st.integers(0, 5))
def test_any_load_ends_with_one_fate_per_request(drawn, workers, failing, most, seed):
    load = [ask(i, at, within, task, utility) for i, (at, within, task, utility) in enumerate(drawn)]
    world = World(seed, failing=failing, failing_restarts=failing, jitter=0.0)
    _, books = run(load, world, workers, max_waiting=most, exact_queue=3)
    if not failing:
        assert books.late == []


def test_a_request_that_even_the_fastest_run_cannot_answer_in_time_is_dropped_on_arrival():
    load = [ask(0, utility=9.0), ask(1, at=0.001, within=0.015)]
    journal, books = run(load, World(), gammas=(4,))
    assert books.fates[1] == Drop(1, "late")
    (entry,) = (entry for entry in journal if Drop(1, "late") in entry.actions)
    assert (entry.event, entry.now) == (Arrived(load[1]), 0.001)


def test_waking_drops_what_became_hopeless_while_the_worker_was_busy():
    scheduler = TokensScheduler(config(gammas=(0,)))
    scheduler.handle(Arrived(ask(0, within=9.0)), 0.0)
    scheduler.handle(Arrived(ask(1, within=0.1)), 0.0)
    wake = scheduler.wake_at()
    assert wake == pytest.approx(0.1 - 0.016)
    assert scheduler.handle(Woke(), wake) == [Drop(1, "late")]
    assert scheduler.wake_at() is None


def test_a_margin_ends_the_wait_that_much_before_the_deadline():
    scheduler = TokensScheduler(config(gammas=(0,), margin=0.25))
    scheduler.handle(Arrived(ask(0, at=2.0, within=9.0)), 2.0)
    scheduler.handle(Arrived(ask(1, at=2.0, within=0.4)), 2.0)
    assert scheduler.wake_at() == pytest.approx(2.3 - 0.016)


def test_with_a_margin_runs_that_take_a_little_longer_are_still_in_time():
    load = bursty(2)
    late = [
        sum(o.outcome == "late" for o in observations(run(load, World(jitter=0.02), margin=m)[0])) for m in (0.0, 0.2)
    ]
    assert late[0] > 0
    assert late[1] == 0


def test_a_request_without_a_deadline_waits_for_ever_and_one_past_it_is_dropped():
    """The margin of an infinite deadline was once infinite too, and what was left of it not a number."""
    scheduler = TokensScheduler(config(margin=0.05))
    for i in range(3):
        scheduler.handle(Arrived(ask(i, within=float("inf"))), 0.0)
    assert scheduler.wake_at() == float("inf")
    assert scheduler.handle(Arrived(ask(3, at=1.0, within=-1.0)), 1.0) == [Drop(3, "late")]
    scheduler.check()


def test_waking_too_early_changes_nothing():
    scheduler = TokensScheduler(config())
    for i in range(3):
        scheduler.handle(Arrived(ask(i)), 0.0)
    before = scheduler.wake_at()
    assert scheduler.handle(Woke(), before / 2) == []
    assert scheduler.wake_at() == before
    scheduler.check()


def test_a_full_queue_drops_what_comes_then():
    scheduler = TokensScheduler(config(max_waiting=2))
    actions = [scheduler.handle(Arrived(ask(i)), 0.0) for i in range(4)]
    assert [type(action[0]).__name__ if action else None for action in actions] == ["Launch", None, None, "Drop"]
    assert actions[3] == [Drop(3, "full")]


def test_an_unknown_task_is_refused_and_leaves_no_trace():
    scheduler = TokensScheduler(config())
    with pytest.raises(InputError, match="task is flowers, but must be one of easy, hard"):
        scheduler.handle(Arrived(ask(0, task="flowers")), 0.0)
    scheduler.check()
    assert scheduler.waiting == 0
    assert isinstance(scheduler.handle(Arrived(ask(1)), 0.0)[0], Launch)


def test_a_task_can_be_added_while_running_if_its_accuracy_is_known():
    scheduler = TokensScheduler(config())
    with pytest.raises(InputError, match=r"accuracy is without gamma \[-10, 4\]"):
        scheduler.add_task("flowers", {-5: 0.1, 0: 0.2})
    scheduler.add_task("flowers", ACCURACY["hard"])
    assert isinstance(scheduler.handle(Arrived(ask(0, task="flowers")), 0.0)[0], Launch)


def test_a_slower_device_is_learnt_and_answers_stop_being_late():
    load = bursty(2, 2.0, rates=(300, 300, 300, 300))
    journal, books = run(load, World(slow=1.5))
    late = [o.outcome == "late" for o in observations(journal) if o.answered is not None]
    assert np.mean(late[:100]) > 0.05
    assert np.mean(late[-500:]) < 0.005
    assert books.scheduler._slowdown == pytest.approx(1.5, rel=0.01)


def test_one_wild_measurement_moves_the_correction_by_a_third_at_most():
    scheduler = TokensScheduler(config())
    (launch,) = scheduler.handle(Arrived(ask(0)), 0.0)
    scheduler.handle(Finished(launch.id, 1000.0), 1000.0)
    assert scheduler._slowdown == pytest.approx(1.3)


def test_adapting_earns_more_than_gamma_zero_under_overload_and_no_less_in_quiet():
    loud, quiet = bursty(8, 1.0, rates=(500,) * 4), bursty(8, 1.0, rates=(20,) * 4)
    for load, least in ((loud, 1.15), (quiet, 0.98)):
        adapted, _ = run(load, World(2))
        fixed, _ = run(load, World(2), gammas=(0,))
        assert report(adapted).utility >= least * report(fixed).utility


def test_requests_worth_nothing_are_served_when_nothing_else_waits():
    load = [ask(i, utility=0.0) for i in range(6)]
    _, books = run(load, World())
    assert all(isinstance(fate, Answer) for fate in books.fates.values())


def test_requests_worth_nothing_do_not_delay_what_is_worth_something():
    """With more batches than the rate rule handles, the worthless one is first by deadline and yet runs last."""
    window = BatchingConfig(window=0.0, most=16)
    busy = [ask(0, within=9.0)]
    worthless = [ask(1, at=0.001, within=0.1, utility=0.0)]
    rest = [ask(i, at=0.001 + i / 1000, within=0.1 + i / 100, utility=1.0) for i in range(2, 6)]
    _, books = run(busy + worthless + rest, World(), gammas=(4,), batching=window)
    runs = [launch.requests for launch in books.launches.values()]
    assert runs[1] != (1,)
    assert sum(isinstance(books.fates[request.id], Answer) for request in rest) == 4


def test_a_batch_too_large_for_any_gamma_is_still_served_in_part_by_the_fastest():
    """The fallback once took the first gamma of the list, which on a small CPU model is not the fastest one."""
    backwards = TABLE.__class__((-10, 0), TABLE.batches, (TABLE.seconds[3], TABLE.seconds[0]))
    load = [ask(0, within=9.0), *(ask(i, at=0.001, within=0.029) for i in range(1, 9))]
    _, books = run(load, World(), latency=backwards, gammas=(-10, 0), rule=RateRule((), (0,)))
    second = books.launches[1]
    assert second.setting == 0
    assert 0 < len(second.requests) < 8


def test_the_rescue_serves_one_request_where_the_gamma_for_large_batches_is_too_slow_for_it():
    crossing = TABLE.__class__((-10, 0), (1, 2), ((0.02, 0.02), (0.01, 0.03)))
    scheduler = TokensScheduler(config(latency=crossing, gammas=(-10, 0), rule=RateRule((), (-10,))))
    (first,) = scheduler.handle(Arrived(ask(0, within=9.0)), 0.0)
    for i in (1, 2):
        scheduler.handle(Arrived(ask(i, within=0.035)), 0.0)
    answer, drop, launch = scheduler.handle(Finished(first.id, 0.02), 0.02)
    assert (answer, drop) == (Answer(0, 0), Drop(1, "late"))
    assert (launch.setting, launch.requests) == (0, (2,))


def test_simultaneous_arrivals_form_one_batch_behind_the_first():
    load = [ask(i) for i in range(9)]
    _, books = run(load, World())
    assert [launch.requests for launch in books.launches.values()] == [(0,), tuple(range(1, 9))]


def test_a_failed_worker_is_restarted_at_once_and_its_requests_tried_once_more():
    scheduler = TokensScheduler(config())
    (launch,) = scheduler.handle(Arrived(ask(0)), 0.0)
    (restart,) = scheduler.handle(Failed(launch.id, "crash"), 0.01)
    assert (restart.kind, restart.worker, restart.requests) == ("restart", 0, ())
    (again,) = scheduler.handle(Finished(restart.id, 0.1), 0.11)
    assert again.requests == (0,)
    assert scheduler.handle(Failed(again.id, "crash"), 0.2)[0] == Drop(0, "failed")


def test_a_failed_restart_is_tried_again_after_a_pause():
    scheduler = TokensScheduler(config())
    (launch,) = scheduler.handle(Arrived(ask(0, within=9.0)), 0.0)
    (restart,) = scheduler.handle(Failed(launch.id, "crash"), 0.01)
    assert scheduler.handle(Failed(restart.id, "no memory"), 0.5) == []
    assert scheduler.wake_at() == 1.5
    (second,) = scheduler.handle(Woke(), 1.5)
    assert (second.kind, second.id) == ("restart", 2)
    scheduler.check()


def test_arrivals_older_than_the_rate_window_are_forgotten_under_constant_overload():
    """They once were kept until the queue became short, so a service under constant overload grew without end."""
    scheduler = TokensScheduler(config(rate_window=0.5, max_waiting=10))
    for i in range(2000):
        scheduler.handle(Arrived(ask(i, at=i / 100, within=99.0)), i / 100)
    assert len(scheduler._arrivals) <= 51


def test_the_same_load_gives_the_same_journal():
    load = bursty(4, 0.3)
    runs = [run(load, World(1, failing=0.1), 2)[0] for _ in range(2)]
    assert runs[0] == runs[1]


def test_gamma_falls_as_the_rate_rises():
    def mean_gamma(rate):
        journal, _ = run(bursty(6, 3.0, rates=(rate,)), World())
        return np.mean([o.setting for o in observations(journal) if o.setting is not None])

    means = [mean_gamma(rate) for rate in (20, 150, 600)]
    assert means[0] > means[1] > means[2]


def test_the_rule_falls_back_to_the_nearest_gamma_allowed():
    scheduler = TokensScheduler(config(rule=RateRule((), (-5,)), gammas=(-10, 0, 4)))
    assert scheduler.handle(Arrived(ask(0)), 0.0)[0].setting == -10


def test_an_empty_load_is_an_empty_journal():
    assert simulate(TokensScheduler(config()), [], World().over([])) == []


def test_every_kind_of_the_test_load_meets_every_fate():
    """A guard of these tests themselves: a load that never drops or never serves would prove nothing."""
    journal, books = run(bursty(0), World(0, failing=0.25))
    assert {"late", "failed"} <= set(drops(books))
    answered = {books.arrived[id].task for id, fate in books.fates.items() if isinstance(fate, Answer)}
    assert answered == {kind.task for kind in KINDS}
    assert len(report(journal).settings) == 4
