"""The cascade's scheduler in virtual time: deadlines, failures, tenants, and the order under overload."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.cascade.choice import BatchTimes
from pliant.cascade.knowledge import Knowledge, Model, Path
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import capacity
from pliant.errors import InputError
from pliant.fairness import FairnessConfig
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Drop,
    Event,
    Failed,
    Finished,
    Launch,
    Request,
    Result,
    Woke,
    replay,
)
from pliant.report import report
from pliant.simulator import simulate
from tests.fixtures.cascade.loads import (
    FIRST,
    LEVEL,
    SECOND,
    WALKED,
    Load,
    World,
    ask,
    bursty,
    done,
    known,
    run,
    scheduler,
    started,
    table,
)

BATCH = 16


class FifoCascade:
    """First come, first served on one device; nothing is dropped or cut short before its deadline has passed."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._queue: list[tuple[Request, int, int | None]] = []  # step, and the launch that answered it so far
        self._running: list[tuple[Request, int, int | None]] = []
        self._launches = 0

    def handle(self, event: Event, now: float) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Arrived(request):
                self._queue.append((request, 0, None))
            case Finished(launch, _, results):
                for (request, step, _), result in zip(self._running, results, strict=True):
                    if result.gain is None:
                        actions.append(Answer(request.id, launch))
                    else:
                        self._queue.append((request, step + 1, launch))
                self._running = []
        actions += [self._give_up(*entry) for entry in self._queue if entry[0].deadline <= now]
        self._queue = [entry for entry in self._queue if entry[0].deadline > now]
        return actions if self._running or not self._queue else [*actions, self._launch()]

    def _give_up(self, request: Request, step: int, former: int | None) -> Action:
        return Drop(request.id, "late") if former is None else Answer(request.id, former, "late")

    def _launch(self) -> Launch:
        model = self._model(*self._queue[0])
        self._running = [entry for entry in self._queue if self._model(*entry) == model][:BATCH]
        self._queue = [entry for entry in self._queue if entry not in self._running]
        self._launches += 1
        return Launch(self._launches - 1, 0, tuple(entry[0].id for entry in self._running), model)

    def _model(self, request: Request, step: int, former: int | None) -> int:
        return self._knowledge.tasks[request.task][request.setting].models[step]

    def wake_at(self) -> float | None:
        return min((entry[0].deadline for entry in self._queue), default=None)

    def check(self) -> None: ...


ROUGH = World(9, failing=0.2, failing_restarts=0.3, jitter=0.3)
PLACES = pytest.mark.parametrize(("workers", "own"), [(1, False), (2, False), (2, True), (3, True)])


# A whole load


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, False), (2, False), (3, True)]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.15]),
)
def test_any_load_and_world_keep_the_books_and_wake_ups_in_order(seed, where, failing, slow, margin):
    """`simulate` itself raises for a wake-up that is not later."""
    world = World(seed, slow, failing, failing, 0.2)
    run(bursty(seed, 0.08), world, *where, margin=margin, restart_pause=0.03, max_waiting=25)


def test_while_pauses_cost_more_than_a_first_model_saves_the_last_one_is_asked_alone():
    at = (0,)
    paths = (Path((0, 1), 0.8, (1.0, 0.5), 1), Path((1,), 0.9, (1.0,)))
    cascade = CascadeScheduler(Knowledge((Model(table(0.3), at), Model(table(1.0), at)), {"news": paths}))
    assert [cascade.candidate("news", asked, 64) for asked in (0, 1)] == [0, 1]
    for i in range(20):  # every fourth launch is paused
        (launch,) = (a for a in cascade.handle(Arrived(ask(i, 10.0 * i)), 10.0 * i) if isinstance(a, Launch))
        seconds = cascade._devices.running[0].expected + (i % 4 == 1)
        cascade.handle(Finished(launch.id, seconds, (Result(i, True),)), 10.0 * i + seconds)
    assert [cascade.candidate("news", asked, 64) for asked in (0, 1)] == [1, 1]
    with pytest.raises(InputError, match="task and candidate"):
        cascade.candidate("news", 2, 64)


@PLACES
def test_a_load_gives_the_same_journal_again_and_a_replay_the_same_decisions(workers, own):
    journal, _ = run(bursty(3, 0.2), ROUGH, workers, own)
    assert run(bursty(3, 0.2), ROUGH, workers, own)[0] == journal
    assert replay(scheduler(known(workers, own), workers), journal) == journal


# One request


@pytest.mark.parametrize(("spare", "goes_on"), [(-0.001, False), (0.001, True)])
def test_a_deadline_that_cannot_bear_the_next_level_gets_the_former_answer(spare, goes_on):
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7, within=FIRST + SECOND + spare))
    (action,) = fresh.handle(done(launch, FIRST, 0.5), FIRST)
    assert isinstance(action, Launch) if goes_on else action == Answer(7, 0, "late")


def test_a_request_that_waits_for_the_next_level_gets_the_former_answer_at_the_last_moment():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(1, within=1.0))
    fresh.handle(Arrived(ask(2, within=5.0, length=256, utility=50.0)), 0.0)
    (other,) = fresh.handle(done(launch, FIRST, 0.01), FIRST)
    assert other.requests == (2,)
    assert fresh.wake_at() == pytest.approx(1.0 - SECOND)
    assert fresh.handle(Woke(), fresh.wake_at()) == [Answer(1, 0, "late")]
    fresh.check()


def test_an_idle_device_refuses_nothing_as_only_a_launch_can_show_that_the_profile_is_wrong():
    fresh = scheduler(LEVEL)
    for number in range(20):
        now = float(number)
        launch = started(fresh, ask(number, at=now, within=FIRST / 2), now)
        assert fresh.handle(done(launch, now, seconds=FIRST / 4), now + FIRST / 4) == [Answer(number, launch.id)]
        fresh.check()


# Failures


def failed(fresh, launch: Launch, now: float) -> list:
    """Fail a launch and restart its worker. Returns what the scheduler does."""
    *actions, restart = fresh.handle(Failed(launch.id, "planted"), now)
    assert (restart.kind, restart.worker) == ("restart", launch.worker)
    return actions + fresh.handle(Finished(restart.id, 0.0), now)


@pytest.mark.parametrize(("gain", "fate"), [(None, Drop(7, "failed")), (0.5, Answer(7, 0, "failed"))])
def test_without_time_for_another_attempt_the_reason_is_the_failure(gain, fate):
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7, within=FIRST + SECOND + 0.001))
    if gain:
        (launch,) = fresh.handle(done(launch, FIRST, gain), FIRST)
    actions = fresh.handle(Failed(launch.id, "planted"), FIRST + SECOND)
    assert actions[0] == fate


# Placement


# Limits


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("more", "first"), [(0.001, 2), (-0.001, 1)])
def test_the_urgent_go_first_while_the_work_of_a_worker_is_a_quarter_of_the_time_left(workers, more, first):
    at = tuple(range(workers))
    knowledge = Knowledge((Model(table(1.0), at), Model(table(4.0), at)), {"news": (Path((0, 1), 1.0),)})
    fresh, times = scheduler(knowledge, workers), BatchTimes(table(1.0))
    launch, *_ = [started(fresh, ask(-number)) for number in range(workers)]
    work, urgent = (times.least(20) + times.least(256)) / workers, FIRST + times.alone(256) + 0.0005
    patient = 2 * work / 0.25 - (urgent - FIRST) + more  # the time left is the mean of both
    fresh.handle(Arrived(ask(1, within=FIRST + patient)), 0.0)
    fresh.handle(Arrived(ask(2, within=urgent, length=256, utility=0.01)), 0.0)
    _, then = fresh.handle(done(launch, FIRST), FIRST)
    assert then.requests == (first,)


def test_of_a_failed_launch_each_half_is_expected_to_take_its_own_seconds():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(0))
    lengths = {1: 20, 2: 30, 3: 40, 4: 50}
    for number, length in lengths.items():
        fresh.handle(Arrived(ask(number, within=number, length=length)), 0.0)
    _, four = fresh.handle(done(launch, FIRST), FIRST)
    assert sorted(four.requests) == [1, 2, 3, 4]
    (half,) = fresh.handle(Failed(four.id, "planted", lost=False), 0.1)
    assert half.requests == (1, 2)
    assert half.expected == pytest.approx(table(1.0).between(30, 2))
    *_, other = fresh.handle(done(half, 0.2, seconds=half.expected), 0.1 + half.expected)
    assert other.requests == (3, 4)
    assert other.expected == pytest.approx(table(1.0).between(50, 2))
    fresh.check()


def flooded(length: int, others: tuple[str, ...] = ("ann",)) -> tuple[CascadeScheduler, Launch]:
    """A scheduler on which others had one text each, and what it launches for 40 texts of a tenant that had 20."""
    fresh = scheduler(LEVEL, fairness=FairnessConfig(slack=0.0))
    owners = [*others, *["flood"] * 60]
    launch = started(fresh, ask(0, length=length, within=60.0, setting=0, tenant=owners[0]))
    for i, owner in enumerate(owners[1:], 1):
        assert not fresh.handle(Arrived(ask(i, length=length, within=60.0, tenant=owner)), 0.0)
    ran = 1
    while ran < len(others) + 20:
        (*_, launch) = fresh.handle(done(launch, 0.0, seconds=launch.expected), 0.0)
        ran += len(launch.requests)
    fresh.check()
    return fresh, launch


@pytest.mark.parametrize("length", [7, 250])
def test_a_launch_of_a_tenant_ahead_of_others_is_as_short_as_nearly_the_best_value_a_second_allows(length):
    _, launch = flooded(length)
    times = BatchTimes(table(1.0))
    seconds_B = times.batch_seconds(length)
    enough = [b for b in range(1, 17) if b / seconds_B[b - 1] >= 0.95 * 16 / seconds_B[15]]
    assert len(launch.requests) == min(enough) < 16
    assert launch.expected == pytest.approx(seconds_B[min(enough) - 1])


def test_a_full_house_makes_room_for_a_tenant_that_has_less_waiting():
    fresh = scheduler(LEVEL, max_waiting=3)
    launch = started(fresh, ask(0, tenant="flood"))
    for number in (1, 2, 3):
        fresh.handle(Arrived(ask(number, tenant="flood")), 0.0)
    assert fresh.handle(Arrived(ask(4, tenant="ann")), 0.0) == [Drop(3, "full")], "the newest of the flood"
    fresh.check()
    assert fresh.waiting == 3
    assert fresh.handle(Arrived(ask(5, tenant="flood")), 0.0) == [Drop(5, "full")]
    actions = fresh.handle(done(launch, FIRST, 0.5), FIRST)
    assert actions[0] == Answer(0, 0, "full"), "neither has it room at the next level"
    assert fresh.waiting + len(actions[1].requests) == 3


def test_a_tenant_s_utilities_count_relative_to_their_mean_at_every_level():
    fresh, now = scheduler(LEVEL), 0.0
    launch = started(fresh, ask(0, within=60.0, tenant="ann", utility=100.0))
    fresh.handle(Arrived(ask(1, within=60.0, length=16, tenant="bob", utility=1.0)), now)
    fresh.handle(Arrived(ask(2, within=60.0, length=256, tenant="ann", utility=100.0)), now)
    ran = []
    for gain in (None, 0.5, 0.5, None):
        now += launch.expected
        (*_, launch) = fresh.handle(done(launch, now, gain, launch.expected), now)
        ran.append((launch.requests, launch.setting))
    assert ran == [((1,), 0), ((2,), 0), ((1,), 1), ((2,), 1)]


@pytest.mark.parametrize(
    ("length", "within", "count"),
    [
        (7, 60.0, 6),  # with a seventh it would take more than twice as long, and half of the device is its share
        (6, 60.0, 1),  # the others are longer
        (7, table(1.0).between(7, 3) + 1e-4, 3),  # a fourth would make it late
        (7, table(1.0).between(7, 1) + 1e-4, 1),
    ],
)
def test_a_launch_of_those_behind_is_filled_with_what_others_have_waiting(length, within, count):
    fresh, launch = flooded(7)
    first = min(item.id for queue in fresh._queues for item in queue)
    fresh.handle(Arrived(ask(100, length=length, within=within, tenant="ann")), 0.0)
    (*_, launch) = fresh.handle(done(launch, 0.0, seconds=launch.expected), 0.0)
    assert launch.requests == (100, *range(first, first + count - 1))
    assert launch.expected == pytest.approx(table(1.0).between(length, count))
    fresh.check()


def overload(times: float) -> Load:
    """Return a load of `times` the capacity of one device."""
    return bursty(6, 1.0, (times * capacity(known(), WALKED),), candidates=1)


@pytest.mark.parametrize(("times", "attained"), [(1.2, 0.99), (2.0, 0.9)])
def test_under_overload_gains_wait_behind_first_answers_and_more_is_earned_than_first_come_first_served(
    times, attained
):
    load, knowledge = overload(times), known()
    ours = report(simulate(scheduler(knowledge), load.requests, World().over(load, knowledge)))
    plain = report(simulate(FifoCascade(knowledge), load.requests, World().over(load, knowledge)))
    assert ours.attainment >= attained and ours.attainment > plain.attainment + 0.3
    assert ours.utility > plain.utility + 0.3 * plain.offered
