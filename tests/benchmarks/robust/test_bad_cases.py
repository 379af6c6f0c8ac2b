"""What goes wrong on a bad day: the profile of another machine or of none, a clock that jumps, and
clients that send again at once for ever. No system fails, hangs, or earns far less than usual.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.benchmarks.robust.clients import FOR_EVER, Clients
from pliant.benchmarks.robust.contest import contestant
from pliant.protocol import Action, Arrived, Event, Scheduler
from pliant.worlds import World

SYSTEMS = pytest.mark.parametrize("system", ["tokens", "bins", "cascade"])
TRUE = World("as the profile says")
LEAST = 0.9  # of what the best rival earns, or ours on a good day, in one run


@SYSTEMS
@pytest.mark.parametrize(
    ("world", "clients"),
    [
        (World("ten times faster", 0.1), "patient"),
        (World("ten times slower", 10.0), "patient"),
        (TRUE, FOR_EVER),
    ],
)
def test_on_a_bad_day_ours_is_not_behind_doing_nothing_clever(system: str, world: World, clients: str) -> None:
    offered = contestant(system)
    ours, *rivals = (offered.value(policy, world, 0.95, 0, clients) for policy in (offered.ours, *offered.rivals))
    assert ours >= LEAST * max(rivals)


class _Jumping(Scheduler):
    """A scheduler whose clock jumps at a time of the world; as the driver's it stands rather than goes back."""

    def __init__(self, scheduler: Scheduler, at: float, jump: float) -> None:
        self._scheduler, self._at, self._jump, self._off, self._now = scheduler, at, jump, 0.0, 0.0

    def handle(self, event: Event, now: float) -> list[Action]:
        self._off = self._jump if now >= self._at else 0.0
        self._now = max(self._now, now + self._off)
        if isinstance(event, Arrived):
            within = event.request.deadline - event.request.arrival
            event = Arrived(replace(event.request, arrival=self._now, deadline=self._now + within))
        return self._scheduler.handle(event, self._now)

    def wake_at(self) -> float | None:
        wake = self._scheduler.wake_at()
        return None if wake is None else wake - self._off

    def check(self) -> None:
        self._scheduler.check()


@SYSTEMS
@pytest.mark.parametrize("jump", [1000.0, -0.5])
def test_a_clock_that_jumps_costs_what_waits_then_and_nothing_later(
    system: str, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = contestant(system)
    usual, play = offered.value(offered.ours, TRUE, offered.loads[0], 0), Clients.play
    monkeypatch.setattr(Clients, "play", lambda those, fresh, *of: play(those, _Jumping(fresh, 1.0, jump), *of))
    assert offered.value(offered.ours, TRUE, offered.loads[0], 0) >= LEAST * usual
