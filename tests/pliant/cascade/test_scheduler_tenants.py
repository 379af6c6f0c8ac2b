"""The cascade's scheduler among several tenants: launches of those ahead, full houses, and what a utility is worth."""

from __future__ import annotations

import pytest

from pliant.cascade.batching import BatchTimes
from pliant.cascade.scheduler import CascadeScheduler
from pliant.fairness import FairnessConfig
from pliant.protocol import Answer, Arrived, Drop, Launch
from tests.fixtures.cascade.loads import FIRST, LEVEL, ask, done, scheduler, started, table


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
