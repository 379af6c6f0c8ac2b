"""The state of devices: which are free, what a launch teaches, and when a broken one restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.devices import LEARN, NEAR, RARE, Devices, Running, Slowness, _opens
from pliant.protocol import Failed, Finished, Launch


@dataclass(frozen=True)
class Cargo:
    """A request as a scheduler carries it."""

    id: int


@dataclass
class PlainDevices:
    """`workers` devices, of which as few facts are kept as suffice. What launches teach is not among them."""

    workers: int
    pause: float
    seconds: Callable[[float], float]
    free: list[int] = field(default_factory=list)
    running: dict[int, Running[Cargo]] = field(default_factory=dict)
    broken: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(range(self.workers))

    def busy(self, now: float) -> list[float]:
        until: dict[int, float] = {}
        for running in self.running.values():
            if running.launch.kind == "run":
                worker = running.launch.worker
                until[worker] = max(now, running.until, until.get(worker, now))
        return sorted(until.values())

    def last(self) -> list[Running[Cargo]]:
        followed = {running.behind for running in self.running.values()}
        return [r for id, r in self.running.items() if r.begun and r.launch.kind == "run" and id not in followed]

    def ahead(self, now: float, lead: float) -> tuple[int, float] | None:
        due = [running for running in self.last() if now >= _opens(running, lead)]
        first = min(due, key=lambda running: running.until, default=None)
        return None if first is None else (first.launch.worker, max(now, first.until))

    def ahead_at(self, now: float, lead: float) -> float | None:
        return min((at for running in self.last() if (at := _opens(running, lead)) > now), default=None)

    def launch(self, launch: Launch, carried: tuple[Cargo, ...], expected: float, now: float) -> None:
        begin, behind = now, None
        if launch.worker in self.free:
            self.free.remove(launch.worker)
        elif launch.kind != "restart":
            front = next(running for running in self.running.values() if running.launch.worker == launch.worker)
            begin, behind = max(now, front.until), front.launch.id
        until = begin + self.seconds(expected)
        self.running[launch.id] = Running(launch, carried, expected, begin, until, behind)

    def cancel(self, request: int) -> bool:
        for id, running in self.running.items():
            if request in running.launch.requests:
                self.running[id] = running._replace(carried=tuple(c for c in running.carried if c.id != request))
                return True
        return False

    def finish(self, id: int, now: float) -> Running[Cargo]:
        running = self.running.pop(id)
        self._go_on(running, now)
        return running

    def fail(self, id: int, lost: bool, now: float) -> Running[Cargo]:
        running = self.running.pop(id)
        if running.begun and not lost and running.launch.kind == "run":
            self._go_on(running, now)
        elif running.begun:
            pause = 0.0 if running.launch.kind == "run" else self.pause
            self.broken.append((now + pause, running.launch.worker))
        return running

    def _go_on(self, ended: Running[Cargo], now: float) -> None:
        for id, running in self.running.items():
            if running.behind == ended.launch.id:
                until = now + self.seconds(running.expected)
                self.running[id] = running._replace(launched=now, until=until, behind=None)
                return
        self.free.append(ended.launch.worker)

    def restarts(self, now: float) -> list[int]:
        """Return the workers whose restarts are due."""
        occupied = {running.launch.worker for running in self.running.values()}
        due = [worker for at, worker in self.broken if at <= now and worker not in occupied]
        self.broken = [(at, worker) for at, worker in self.broken if worker not in due]
        return due

    def wake_at(self) -> float | None:
        occupied = {running.launch.worker for running in self.running.values()}
        return min((at for at, worker in self.broken if worker not in occupied), default=None)


class Both:
    """Gives every event to `Devices` and to the plain rules, and asserts that they say the same."""

    def __init__(self, workers: int, pause: float) -> None:
        self.books: Devices[Cargo] = Devices(workers, pause)
        self.plain = PlainDevices(workers, pause, self.books.seconds)
        self._requests = 0

    def launch(self, worker: int, count: int, expected: float, now: float, kind: str) -> None:
        carried = tuple(Cargo(self._requests + i) for i in range(count))
        self._requests += count
        self._same_seconds()
        launch = self.books.launch(worker, carried, expected, now, kind=kind)
        self.plain.launch(launch, carried, expected, now)

    def end(self, id: int, how: str, seconds: float, now: float) -> None:
        self._same_seconds()
        if how == "finish":
            assert self.books.finish(Finished(id, seconds), now) == self.plain.finish(id, now)
        else:
            lost = how == "lost"
            assert self.books.fail(Failed(id, "planted", lost), now) == self.plain.fail(id, lost, now)

    def cancel(self, request: int) -> None:
        assert self.books.cancel(request) == self.plain.cancel(request)

    def restart(self, now: float) -> None:
        self._same_seconds()
        launches = self.books.restarts(now)
        assert [launch.worker for launch in launches] == self.plain.restarts(now)
        for launch in launches:
            self.plain.launch(launch, (), 0.0, now)

    def compare(self, now: float, lead: float) -> None:
        books, plain = self.books, self.plain
        books.check()
        assert list(books.free) == plain.free and list(books.free.values()) == sorted(books.free.values())
        assert books.running == list(plain.running.values())
        assert books.busy(now) == plain.busy(now)
        assert books.ahead(now, lead) == plain.ahead(now, lead)
        assert books.ahead_at(now, lead) == plain.ahead_at(now, lead)
        assert books.wake_at() == plain.wake_at()
        lost = [worker for worker in range(plain.workers) if books.lost(worker)]
        assert lost == sorted(worker for _, worker in plain.broken)

    def ends(self) -> list[int]:
        """Return the launches that may end now: those that have begun, and those whose front is lost."""
        return [id for id, r in self.plain.running.items() if r.begun or r.behind not in self.plain.running]

    def _same_seconds(self) -> None:
        """Let the plain rules go by what was learnt before this event."""
        slowdown, turnaround = self.books.slowdown, self.books.turnaround
        self.plain.seconds = lambda expected: expected * slowdown + turnaround


def devices(workers: int = 2, pause: float = 1.0) -> Devices[Cargo]:
    return Devices(workers, pause)


def ran(books: Devices[Cargo], seconds: float, expected: float = 1.0, beyond: float = 0.0) -> None:
    """One launch from time 0 on."""
    launch = books.launch(next(iter(books.free)), (Cargo(1),), expected, 0.0)
    books.finish(Finished(launch.id, seconds), seconds + beyond)
    books.check()


def test_a_launch_says_the_seconds_that_are_planned_with_corrected_by_what_was_learnt():
    books = devices()
    ran(books, seconds=2.0, beyond=0.02)
    launch = books.launch(0, (Cargo(2),), 3.0, 5.0)
    assert launch.expected == books.seconds(3.0) > 3.0
    books.fail(Failed(launch.id, "planted"), 6.0)
    assert [restart.expected for restart in books.restarts(6.0)] == [0.0]


def test_a_worker_that_failed_restarts_at_once_and_after_a_pause_where_the_restart_failed():
    books = devices(1, pause=0.7)
    books.launch(0, (Cargo(1),), 1.0, 0.0)
    assert books.fail(Failed(0, "planted"), 5.0).carried == (Cargo(1),)
    assert books.wake_at() == 5.0
    books.check()
    (restart,) = books.restarts(5.0)
    assert restart == Launch(1, 0, kind="restart")
    assert books.wake_at() is None
    books.fail(Failed(1, "planted"), 6.0)
    assert books.wake_at() == pytest.approx(6.7)
    assert books.restarts(6.6) == []
    books.check()
    (again,) = books.restarts(6.7)
    books.finish(Finished(again.id, 1.0), 7.7)
    assert list(books.free) == [0]
    books.check()


def test_each_launch_moves_predictions_by_a_tenth_and_an_odd_one_counts_as_twice_too_long_or_short():
    for seconds, slowdown in ((1.5, 1.05), (2.0, 1.1), (9.0, 1.1), (0.5, 0.95), (0.25, 0.95), (0.1, 0.95)):
        books = devices()
        ran(books, seconds)
        assert books.slowdown == pytest.approx(slowdown)
    for beyond, turnaround in ((0.05, 0.005), (0.1, 0.01), (3.0, 0.01), (-0.5, 0.0)):
        books = devices()
        ran(books, 1.0, beyond=beyond)
        assert books.turnaround == pytest.approx(turnaround)


def test_a_launch_is_followed_at_most_a_quarter_of_its_time_before_its_end():
    books = devices(1)
    books.launch(0, (Cargo(1),), 1.0, 0.0)
    assert books.ahead(0.7, lead=9.0) is None and books.ahead(0.75, lead=9.0) == (0, 1.0)
    assert books.ahead(1.5, lead=9.0) == (0, 1.5), "it takes longer than expected"


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 5), st.sampled_from([0.0, 0.3]))
def test_whatever_happens_devices_say_what_looking_at_every_launch_says(data, workers, pause):
    both, now, lead = Both(workers, pause), 0.0, 0.2
    kinds, steps = ("run", "run", "run", "load"), ("launch", "ahead", "end", "end", "cancel", "restart", "lead")
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.0, 0.1, 0.5]))
        step = data.draw(st.sampled_from(steps))
        expected, count = data.draw(st.sampled_from([0.2, 0.5, 1.0])), data.draw(st.integers(0, 3))
        running, ends = both.books.running, both.ends()
        if step == "launch" and both.books.free:
            worker = data.draw(st.sampled_from(list(both.books.free)))
            both.launch(worker, count, expected, now, data.draw(st.sampled_from(kinds)))
        elif step == "ahead" and (opening := both.books.ahead(now, lead)) is not None:
            both.launch(opening[0], count, expected, now, "run")
        elif step == "end" and ends:
            id, how = (
                data.draw(st.sampled_from(ends)),
                data.draw(st.sampled_from(["finish", "finish", "lost", "alive"])),
            )
            begun = next(r.begun for r in running if r.launch.id == id)
            both.end(id, how if begun else "lost", data.draw(st.sampled_from([0.1, 0.6])), now)
        elif step == "cancel":
            both.cancel(data.draw(st.integers(0, 8)))
        elif step == "restart":
            both.restart(now)
        elif step == "lead":
            lead = data.draw(st.sampled_from([0.0, 0.05, 0.2]))
        both.compare(now, lead)


def after(*ratios: float, expected: float = 1.0) -> Slowness:
    slowness = Slowness()
    for ratio in ratios:
        slowness.learn(ratio * expected, expected)
    return slowness


@pytest.mark.parametrize("factor", [1 / 100, 1 / 8, 8.0, 100.0])
def test_a_device_that_is_far_off_its_profile_is_known_after_three_launches(factor: float) -> None:
    assert after(factor).mean == pytest.approx(1.0, abs=0.11), "one launch alone may be a pause"
    assert after(*[factor] * 3).mean == pytest.approx(factor)


def test_pauses_move_the_ratio_by_little_and_are_counted_apart() -> None:
    paused = [0.25, *[0.25] * 9, 50.0, *[0.25] * 9] * 20
    slowness = after(*paused, expected=0.01)
    assert slowness.mean == pytest.approx(0.25, rel=0.1)
    assert slowness.least == 0.25
    assert slowness.excess == pytest.approx(0.05 * 0.01 * (50.0 - 0.25 * NEAR), rel=0.5)


def test_one_long_pause_is_no_reason_to_think_a_launch_slow_and_is_forgotten() -> None:
    slowness = after(*[1.0] * 20, 1e9)
    assert slowness.mean <= 1 + LEARN
    assert slowness.excess == pytest.approx(RARE * (1e9 - NEAR))
    for _ in range(2000):
        slowness.learn(1.0, 1.0)
    assert slowness.excess < 1e-6
