"""The state of devices: which are free, what a launch teaches, and when a broken one restarts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.devices import LEARN, NEAR, RARE, SEEN, Devices, Slowness
from pliant.protocol import Failed, Finished, Launch
from tests.fixtures.devices.counting import lines
from tests.fixtures.devices.plain import Both, Cargo


def devices(workers: int = 2, pause: float = 1.0) -> Devices[Cargo]:
    return Devices(workers, pause)


def ran(books: Devices[Cargo], seconds: float, expected: float = 1.0, beyond: float = 0.0) -> None:
    """One launch from time 0 on."""
    launch = books.launch(next(iter(books.free)), (Cargo(1),), expected, 0.0)
    books.finish(Finished(launch.id, seconds), seconds + beyond)
    books.check()


def test_a_launch_takes_its_worker_and_its_end_gives_it_back_with_what_was_carried():
    books = devices()
    launch = books.launch(1, (Cargo(4), Cargo(5)), 2.0, now=10.0, setting=3)
    assert launch == Launch(0, 1, (4, 5), 3, expected=2.0)
    assert list(books.free) == [0]
    (running,) = books.running
    assert (running.carried, running.expected, running.launched, running.until) == (
        (Cargo(4), Cargo(5)),
        2.0,
        10.0,
        12.0,
    )
    books.check()
    assert books.finish(Finished(0, 2.0), 12.0) == running
    assert sorted(books.free) == [0, 1]
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


def test_a_launch_whose_model_failed_leaves_its_worker_free_but_a_failed_load_does_not():
    books = devices(2)
    run, load = books.launch(0, (Cargo(1),), 1.0, 0.0), books.launch(1, (), 1.0, 0.0, 2, "load")
    assert (load.setting, load.kind, load.requests) == (2, "load", ())
    assert books.fail(Failed(run.id, "planted", lost=False), 1.0).launch == run
    assert (list(books.free), books.wake_at()) == ([0], None)
    books.fail(Failed(load.id, "planted", lost=False), 2.0)
    assert (list(books.free), books.wake_at()) == ([0], 3.0), "after the pause, as it may not hold any model now"
    assert (books.slowdown, books.turnaround) == (1.0, 0.0)
    books.check()


def test_shortly_before_it_is_free_a_device_may_be_given_its_next_launch_which_begins_when_the_first_ends():
    books = devices(1)
    books.launch(0, (Cargo(1),), 1.0, 0.0)
    assert books.ahead(0.8, lead=0.1) is None and books.ahead_at(0.8, 0.1) == pytest.approx(0.9)
    assert books.ahead(0.9, lead=0.1) == (0, 1.0) and books.ahead_at(0.9, 0.1) is None
    behind = books.launch(0, (Cargo(2),), 2.0, 0.9)
    assert books.ahead(0.95, lead=0.1) is None, "two are in flight"
    assert books.busy(0.95) == [3.0] and not books.free
    books.check()
    books.finish(Finished(0, 1.0), 1.25)
    (running,) = books.running
    assert (running.launch, running.launched, running.begun) == (behind, 1.25, True)
    assert running.until == 3.25
    books.finish(Finished(1, 2.0), 3.25)
    assert list(books.free) == [0]
    books.check()


def test_a_launch_is_followed_at_most_a_quarter_of_its_time_before_its_end():
    books = devices(1)
    books.launch(0, (Cargo(1),), 1.0, 0.0)
    assert books.ahead(0.7, lead=9.0) is None and books.ahead(0.75, lead=9.0) == (0, 1.0)
    assert books.ahead(1.5, lead=9.0) == (0, 1.5), "it takes longer than expected"


def test_what_waits_behind_a_launch_whose_worker_is_lost_fails_unbegun_and_then_the_worker_restarts():
    books = devices(1)
    books.launch(0, (Cargo(1),), 1.0, 0.0)
    books.launch(0, (Cargo(2),), 1.0, 0.9)
    assert books.fail(Failed(0, "it died"), 1.0).begun and books.lost(0)
    assert books.restarts(1.0) == [] and books.wake_at() is None
    books.check()
    assert not books.fail(Failed(1, "it died"), 1.0).begun
    (restart,) = books.restarts(1.0)
    assert (restart.worker, restart.kind) == (0, "restart")
    books.check()


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


def cycle(books: Devices[Cargo], number: int) -> None:
    """A launch of every kind, followed ahead, cancelled, failed and restarted, at a time of its own."""
    now = 10.0 * number
    first = books.launch(next(iter(books.free)), (Cargo(3 * number), Cargo(3 * number + 1)), 1.0, now)
    opening = books.ahead(now + 0.9, 0.2)
    assert opening is not None and opening[0] == first.worker
    second = books.launch(opening[0], (Cargo(3 * number + 2),), 1.0, now + 0.9)
    books.ahead_at(now + 0.9, 0.2)
    books.cancel(3 * number)
    books.finish(Finished(first.id, 1.0), now + 1.0)
    books.fail(Failed(second.id, "planted"), now + 2.0)
    assert books.lost(first.worker) and books.wake_at() == now + 2.0
    (restart,) = books.restarts(now + 2.0)
    books.finish(Finished(restart.id, 0.1), now + 3.0)


def of_many(workers: int) -> Callable[[], None]:
    """Return cycles on the last free one of these devices: the others run long launches, which nothing may follow yet."""
    books = devices(workers)
    for worker in range(workers - 1):
        books.launch(worker, (Cargo(-1 - worker),), 1e6, 0.0)
    cycle(books, 1)
    return lambda: [cycle(books, number) for number in range(2, 12)] and None


def test_no_event_looks_at_more_launches_where_there_are_more_devices():
    assert lines(of_many(1000)) == lines(of_many(4)) > 300


def after(*ratios: float, expected: float = 1.0) -> Slowness:
    slowness = Slowness()
    for ratio in ratios:
        slowness.learn(ratio * expected, expected)
    return slowness


def test_the_profile_is_right_until_launches_tell_otherwise() -> None:
    assert (after().mean, after().least, after().excess) == (1.0, 1.0, 0.0)
    assert after(1.2).mean == pytest.approx(1 + LEARN * 0.2)


@pytest.mark.parametrize("factor", [1 / 100, 1 / 8, 8.0, 100.0])
def test_a_device_that_is_far_off_its_profile_is_known_after_three_launches(factor: float) -> None:
    assert after(factor).mean == pytest.approx(1.0, abs=0.11), "one launch alone may be a pause"
    assert after(*[factor] * 3).mean == pytest.approx(factor)


@pytest.mark.parametrize("factor", [1 / 8, 8.0])
def test_a_step_is_known_once_most_of_the_latest_launches_show_it(factor: float) -> None:
    assert after(*[1.0] * 50, *[factor] * (SEEN // 2 + 1)).mean == pytest.approx(factor)


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


def test_noise_is_smoothed_and_its_mean_is_what_launches_take() -> None:
    rng = np.random.default_rng(0)
    slowness = after(*np.exp(0.3 * rng.standard_normal(500)))
    assert slowness.mean == pytest.approx(np.exp(0.3**2 / 2), rel=0.15)
    assert slowness.least < 1.0, "what a launch may hope for"
