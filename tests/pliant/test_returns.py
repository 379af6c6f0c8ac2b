"""A device is kept free for a tenant that comes back at once after each answer: when, for how long, and who pays."""

from __future__ import annotations

import pytest

from pliant.fairness import Fairness, FairnessConfig
from pliant.returns import PATIENCE, Returns

GAP, LAUNCH = 0.01, 0.1


def learnt(gap: float = GAP, launch: float = LAUNCH, received: float = 5.0) -> tuple[Returns, Fairness, float]:
    """A tenant that came back ten times after `gap` seconds and has just got its answer, beside one that waits."""
    fairness = Fairness(FairnessConfig(burst=0.0, slack=0.0))
    returns, now = Returns(fairness), 0.0
    fairness.join(0, "many", 1.0)
    fairness.join(1, "ann", 1.0)
    fairness.leave(1)
    fairness.pay("many", received)
    returns.launched(launch)
    for request in range(2, 12):
        returns.came(request, "ann", now)
        now += 1.0
        returns.ended(request, now)
        now += gap
    return returns, fairness, now - gap


def test_a_device_is_kept_for_as_long_as_the_tenant_usually_takes_and_it_pays_for_that():
    returns, fairness, now = learnt()
    before = fairness.received("ann")
    assert returns.until(now) == pytest.approx(now + PATIENCE * GAP)
    returns.came(99, "ann", now + GAP)
    assert returns.until(now + GAP) is None, "it is there"
    assert fairness.received("ann") - before == pytest.approx(GAP)


def test_nobody_is_waited_for_longer_and_the_tenant_pays_then_too():
    returns, fairness, now = learnt()
    at, before = returns.until(now), fairness.received("ann")
    assert returns.until(at) is None
    assert fairness.received("ann") - before == pytest.approx(PATIENCE * GAP)
    assert returns.until(at + 1e-6) is None


@pytest.mark.parametrize(
    "rest",
    [{"gap": LAUNCH}, {"launch": GAP}, {"received": -1.0}],
    ids=["it takes too long", "a launch is short", "it has received more than who waits"],
)
def test_no_device_is_kept_where_that_is_dearer_than_a_launch_or_not_the_tenant_s_due(rest):
    returns, _, now = learnt(**rest)
    assert returns.until(now) is None


def test_two_launches_and_the_way_between_them_take_no_longer_than_the_tenant_s_share_allows():
    returns, _, now = learnt(gap=LAUNCH)
    own = 0.02
    most = returns.others(own, now + LAUNCH)
    assert most + own == pytest.approx(2 * (LAUNCH + own)), "half of a device is its share"
    assert returns.others(own, now + 3 * LAUNCH) == 0.0, "it is no longer expected"
    assert returns.filled({"ann"}, own) == pytest.approx(2 * own), "no more of others than its share leaves"
    returns.launched(most)
    assert returns.filled({"ann"}, own) == pytest.approx(own), "what the longest launch leaves"


def test_a_bound_does_not_grow_with_returns_that_others_make_longer():
    returns, _, now = learnt(gap=LAUNCH)
    before = returns.others(0.02, now)
    for request in range(20, 25):
        now += 1.5 * LAUNCH
        returns.came(request, "ann", now)
        returns.ended(request, now)
    assert returns.others(0.02, now) < 1.2 * before
