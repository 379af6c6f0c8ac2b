"""The state of devices: which are free, what a launch teaches, and when a broken one restarts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.devices import LEARN, NEAR, RARE, Devices, Slowness
from pliant.protocol import Failed, Finished, Launch
from tests.fixtures.devices.plain import Both, Cargo


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
