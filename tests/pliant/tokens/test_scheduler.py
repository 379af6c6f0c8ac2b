"""The scheduler around any policy, in virtual time: its state stays consistent, and every request has one fate."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.journal import decode
from pliant.protocol import Answer, Arrived, Cancelled, Changed, Drop, Failed, Finished, Launch, Woke, replay
from pliant.tokens.policies import POLICIES
from pliant.tokens.scheduler import Options
from tests.fixtures.tokens.loads import KNOWN, TABLE, TRIMMING, World, ask, bursty, known, run, scheduler, text

every_policy = pytest.mark.parametrize("policy", POLICIES)


def drops(books) -> Counter:
    return Counter(fate.reason for fate in books.fates.values() if isinstance(fate, Drop))


# Whole loads


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("policy", TRIMMING)
def test_with_exact_durations_no_answer_is_late(policy, workers):
    _, books = run(bursty(workers, rates=[rate * workers for rate in (40, 400, 700)]), World(), workers, policy)
    assert books.late == []
    assert drops(books)["late"] > 0  # the load was too much for one gamma and one worker, or the test proves little


@every_policy
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("failing", "restarts"), [(0.3, 0.3), (1.0, 0.6)])
def test_books_balance_while_workers_fail(policy, workers, failing, restarts):
    load = bursty(3, 0.3)
    world = World(7, failing=failing, failing_restarts=restarts, jitter=0.2)
    journal, books = run(load, world, workers, policy, restart_pause=0.01)
    tries = Counter(number for launch in books.launches.values() for number in launch.requests)
    assert any(isinstance(entry.event, Failed) for entry in journal)
    assert max(tries.values()) == Options().attempts


@every_policy
def test_a_journal_replays_exactly_and_the_same_load_gives_the_same_again(policy):
    load, options = bursty(4, 0.3), {"max_waiting": 30, "margin": 0.05}
    world = {"failing": 0.15, "failing_restarts": 0.3, "jitter": 0.1}
    first, second = (run(load, World(1, **world), 2, policy, **options)[0] for _ in range(2))
    assert first == second
    assert replay(scheduler(policy, 2, **options), map(decode, text(first))) == first


requests_ = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda n: n / 20),  # arrivals on a grid, so that many coincide
        st.sampled_from([0.0, 0.005, 0.01, 0.05, 0.2, 3.0]),
        st.sampled_from(["easy", "hard"]),
        st.sampled_from([0.0, 0.3, 1.0, 50.0]),
    ),
    max_size=40,
)


def hopeless(request, policy) -> bool:
    """Whether by the profile not even the fastest launch of it alone would have been in time."""
    table = known(policy).latency
    return request.deadline - request.arrival < min(table.at(setting, 1) for setting in table.settings)


@settings(max_examples=200)
@given(
    requests_,
    st.sampled_from(list(POLICIES)),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([2, 2048]),
    st.lists(st.tuples(st.floats(0, 3), st.sampled_from([0.5, 0.9, 1.0, 3.0])), max_size=3),
)
def test_any_load_and_any_changes_end_with_one_fate_per_request(drawn, policy, workers, failing, max_waiting, changes):
    load = [ask(i, at, within, task, utility) for i, (at, within, task, utility) in enumerate(drawn)]
    world = World(3, failing=failing, failing_restarts=failing)
    profiles = [(at, slower(policy, factor)) for at, factor in changes]
    journal, books = run(load, world, workers, policy, profiles, max_waiting=max_waiting)
    if not failing and not changes and policy in TRIMMING:
        assert all(hopeless(books.arrived[id], policy) for id in books.late), "only what an idle device tries, to learn"
    assert replay(scheduler(policy, workers, max_waiting=max_waiting), journal) == journal


def slower(policy: str, factor: float):
    table = known(policy).latency
    rows = tuple(tuple(factor * s for s in row) for row in table.seconds)
    return replace(known(policy), latency=replace(table, seconds=rows))


# Deadlines, margin, waking


@every_policy
def test_waking_drops_what_became_hopeless_while_the_worker_was_busy(policy):
    fresh = scheduler(policy)
    fresh.handle(Arrived(ask(0, within=9.0)), 0.0)
    fresh.handle(Arrived(ask(1, within=0.1)), 0.0)
    wake = fresh.wake_at()
    assert wake == pytest.approx(0.1 - fastest(policy))
    assert fresh.handle(Woke(), wake) == [Drop(1, "late")]
    assert fresh.wake_at() != wake


def fastest(policy: str) -> float:
    """Return the seconds of one request at the fastest setting of the profile."""
    return float(known(policy).latency.dense(1)[:, 1].min())


@settings(max_examples=300)
@given(st.floats(0, 1e6), st.floats(0.02, 9.0), st.sampled_from(list(POLICIES)))
def test_after_waking_the_next_wake_lies_later(at, within, policy):
    """The deadline less the duration, compared with now plus the duration, may differ in the last bit."""
    fresh = scheduler(policy)
    fresh.handle(Arrived(ask(0, at, float("inf"))), at)
    fresh.handle(Arrived(ask(1, at, within)), at)
    wake = max(at, fresh.wake_at())
    fresh.handle(Woke(), wake)
    assert fresh.wake_at() is None or fresh.wake_at() > wake


@every_policy
def test_a_margin_ends_the_wait_that_much_before_the_deadline(policy):
    fresh = scheduler(policy, margin=0.25)
    fresh.handle(Arrived(ask(0, at=2.0, within=9.0)), 2.0)
    fresh.handle(Arrived(ask(1, at=2.0, within=0.4)), 2.0)
    assert fresh.wake_at() == pytest.approx(2.3 - fastest(policy))


@every_policy
def test_a_request_without_a_deadline_waits_for_ever_and_one_past_it_is_dropped(policy):
    """The margin of an infinite deadline was once infinite too, and the time left was not a number."""
    fresh = scheduler(policy, margin=0.05)
    for i in range(3):
        fresh.handle(Arrived(ask(i, within=float("inf"))), 0.0)
    assert fresh.wake_at() == float("inf")
    assert fresh.handle(Arrived(ask(3, at=1.0, within=-1.0)), 1.0) == [Drop(3, "late")]
    fresh.check()


@every_policy
def test_a_full_queue_drops_what_comes_then(policy):
    fresh = scheduler(policy, max_waiting=2)
    fresh.handle(Arrived(ask(0)), 0.0)  # a worker free runs it, or loads a variant first
    while fresh.waiting < 2:
        fresh.handle(Arrived(ask(10 + fresh.waiting)), 0.0)
    assert fresh.handle(Arrived(ask(3)), 0.0) == [Drop(3, "full")]


@every_policy
def test_an_unknown_task_is_refused_and_leaves_no_trace(policy):
    fresh = scheduler(policy)
    with pytest.raises(InputError, match="task is flowers, but must be one of easy, hard"):
        fresh.handle(Arrived(ask(0, task="flowers")), 0.0)
    fresh.check()
    assert (fresh.waiting, fresh.wake_at()) == (0, None)
    assert isinstance(fresh.handle(Arrived(ask(1)), 0.0)[0], Launch)


# What is measured


# Failures


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "infaas"])
def test_a_failed_worker_is_restarted_at_once_and_its_requests_tried_once_more(policy):
    fresh = scheduler(policy)
    (launch,) = fresh.handle(Arrived(ask(0)), 0.0)
    (restart,) = fresh.handle(Failed(launch.id, "crash"), 0.01)
    assert (restart.kind, restart.worker, restart.requests) == ("restart", 0, ())
    (again,) = fresh.handle(Finished(restart.id, 0.1), 0.11)
    assert again.requests == (0,)
    assert fresh.handle(Failed(again.id, "crash"), 0.2)[0] == Drop(0, "failed")


@every_policy
def test_arrivals_are_forgotten_while_the_worker_hangs(policy):
    """They once were kept until a worker fell free, so a service whose worker never came back grew without end."""
    fresh = scheduler(policy)
    for i in range(2000):
        fresh.handle(Arrived(ask(i, at=i / 100, within=0.05)), i / 100)
    kept = [held for held in containers_of(fresh._policy) if len(held) > 150]
    assert kept == []


def containers_of(policy) -> list:
    """Return every list, dict, set, deque and counter that a policy holds, at any depth."""
    from gc import get_referents

    containers, visited, todo = [], set(), [policy]
    while todo:
        item = todo.pop()
        if id(item) in visited or isinstance(item, type) or callable(item) or type(item).__module__ == "numpy":
            continue
        visited.add(id(item))
        if isinstance(item, (list, dict, set)) or type(item).__name__ in ("deque", "Counter"):
            containers.append(item)
        todo += get_referents(item)
    return containers


# Exact sequences of events


def of(name: str, request):
    return replace(request, tenant=name)


def test_a_full_queue_gives_up_the_newest_request_of_whom_most_wait_for():
    fresh = scheduler(max_waiting=3)
    (launch,) = fresh.handle(Arrived(of("ann", ask(0, within=9.0))), 0.0)
    for i in (1, 2, 3):
        assert fresh.handle(Arrived(of("ann", ask(i, within=9.0))), 0.0) == []
    assert fresh.handle(Arrived(of("ann", ask(4, within=9.0))), 0.0) == [Drop(4, "full")]
    assert fresh.handle(Arrived(of("ben", ask(5, within=9.0))), 0.0) == [Drop(3, "full")]
    assert fresh.handle(Arrived(of("ben", ask(6, within=9.0))), 0.0) == [Drop(6, "full")]
    assert (fresh.waiting, fresh.batches_waiting) == (3, 1)
    fresh.check()
    assert fresh.handle(Cancelled(1), 0.0) == [] and fresh.waiting == 2
    answer, following = fresh.handle(Finished(launch.id, 0.02), 0.02)
    assert (answer, following.requests) == (Answer(0, launch.id), (2, 5))
    fresh.check()


def test_after_a_failure_requests_run_apart_and_are_expected_to_take_as_long_as_each_alone():
    fresh = scheduler("pets")
    fresh.handle(Changed(KNOWN.plain()), 0.0)
    (first,) = fresh.handle(Arrived(ask(0, within=9.0)), 0.0)
    for i in (1, 2):
        fresh.handle(Arrived(ask(i, within=9.0)), 0.0)
    _, both = fresh.handle(Finished(first.id, 0.016), 0.016)
    assert both.requests == (1, 2)
    (running,) = fresh.running
    assert running.expected == pytest.approx(TABLE.at(0, 2))
    (restart,) = fresh.handle(Failed(both.id, "crash"), 0.02)
    (alone,) = fresh.handle(Finished(restart.id, 0.01), 0.03)
    (running,) = fresh.running
    assert (alone.requests, running.expected) == ((1,), TABLE.at(0, 1))
    assert (fresh.waiting, fresh.wake_at()) == (1, pytest.approx(9.0 - fastest("pets")))
    fresh.check()
    answer, other = fresh.handle(Finished(alone.id, 0.016), 0.05)
    assert (answer, other.requests) == (Answer(1, alone.id), (2,))
    assert fresh.handle(Failed(other.id, "crash"), 0.06)[0] == Drop(2, "failed")
    fresh.check()
