"""Whose request a full event loop starts next: its time is shared among tenants as a device's seconds are.

A tenant that asks again at once waits for the loop in each of the few turns that an answer takes, so taking turns in
starting is not enough: while somebody is there who has had less, requests of the others are started one at a time, and
only when the loop has nothing else to do, or has started none for a moment. So no time of the loop is lost, and who asks
little waits for hardly more than one request of the others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from pliant.fairness import Fairness, FairnessConfig

Begin = Callable[[], None]
SHARING = FairnessConfig(burst=0.05, slack=0.001, remembered=256, absence=0.2)  # in seconds of the loop
MOMENT = 0.01  # seconds after which a request is started though somebody is there who has had less


class Turns:
    """The requests that wait to be started, by tenant, and how many of each are under way."""

    def __init__(self) -> None:
        self._fairness = Fairness(SHARING)
        self._waiting: dict[str, deque[tuple[int, Begin]]] = {}  # of tenants with any: numbers, in their order
        self._count, self._number, self._latest = 0, 0, 0.0
        self._under_way: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._count

    def wait(self, begin: Begin, tenant: str, weight: float) -> None:
        """Let a request wait for its turn."""
        self._fairness.join(self._number, tenant, weight)
        self._waiting.setdefault(tenant, deque()).append((self._number, begin))
        self._number, self._count = self._number + 1, self._count + 1

    def take(self, most: int, cost: float, idle: bool, now: float) -> list[Begin]:
        """Return those that are started now, at most so many.

        `cost`: seconds of the loop that each will take; `idle`: whether the loop has nothing else to do.
        """
        taken: list[Begin] = []
        while self._count and len(taken) < most:
            turn, behind = self._fairness.turn(), self._fairness.behind()
            names = self._waiting if turn is None else turn
            name = min(names, key=lambda name: self._waiting[name][0][0])  # the first that came
            ahead = behind is not None and name not in behind
            if ahead and (taken or not (idle or now - self._latest >= MOMENT)):
                break
            taken.append(self._take(name, cost))
            self._latest = now
            if ahead:
                break
        return taken

    def _take(self, name: str, cost: float) -> Begin:
        queue = self._waiting[name]
        number, begin = queue.popleft()
        if not queue:
            del self._waiting[name]
        self._count -= 1
        self._fairness.launch(number, [number], cost)
        self._fairness.ended(number)
        return begin

    def begun(self, tenant: str) -> None:
        """A request of the tenant is under way."""
        self._under_way[tenant] += 1

    def ended(self, tenant: str) -> None:
        """The answer to one that was has begun, or its client has left."""
        self._under_way[tenant] -= 1
        if not self._under_way[tenant]:
            del self._under_way[tenant]

    def before(self, tenant: str) -> tuple[int, int]:
        """Return how many requests wait, and are under way, as far as they delay a further one of this tenant.

        These are its own, at the share of the loop that is its own, but no more than all are.
        """
        if not self._fairness.contended:
            return self._count, self._under_way.total()
        share = self._fairness.share({tenant}) or 1.0
        waiting, under_way = len(self._waiting.get(tenant, ())), self._under_way[tenant]
        return min(self._count, round(waiting / share)), min(self._under_way.total(), round(under_way / share))
