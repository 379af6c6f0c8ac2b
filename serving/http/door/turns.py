"""Whose request is started next: of those that wait, the first of the client's tenant for which least has been started.

So a tenant shares the event loop's time with the others as it shares the devices (pliant/fairness.py), however many requests
or connections it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

from pliant.fairness import Fairness, FairnessConfig
from serving.client import ANYBODY, Client

SHARING = FairnessConfig(burst=1.0, slack=0.0, absence=100.0)
"""In requests that are started."""
RECENT = 10.0  # seconds


class Turns:
    """Requests to be started, by tenant in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[int, Callable[[], None]]]] = {}
        self._fairness, self._ids, self._count = Fairness(SHARING), count(), 0
        self._seen: dict[str, float] = {}  # tenants whose requests came of late, and when the latest did

    def __len__(self) -> int:
        return self._count

    @property
    def contended(self) -> bool:
        """Whether requests of more than one tenant came recently."""
        return len(self._seen) > 1

    def note(self, client: Client, now: float) -> None:
        """Note that a request came."""
        self._seen[client.tenant] = now

    def forget(self, now: float) -> None:
        """Forget tenants of whom nothing has come for `RECENT` seconds."""
        self._seen = {name: at for name, at in self._seen.items() if now - at < RECENT}

    def before(self, client: Client) -> int:
        """Return how many requests are started before a new one of this client, if it has received no less than others."""
        own = len(self._waiting.get(client.tenant, ()))
        return sum(min(len(waiting), own + (name != client.tenant)) for name, waiting in self._waiting.items())

    def append(self, begin: Callable[[], None], client: Client = ANYBODY) -> None:
        """Have a request wait; `begin` starts it."""
        id = next(self._ids)
        self._fairness.join(id, client.tenant, client.weight)
        self._waiting.setdefault(client.tenant, deque()).append((id, begin))
        self._count += 1

    def take(self) -> Callable[[], None]:
        """Return what starts the next request, which waits no longer."""
        name = self._fairness.order()[0] if len(self._waiting) > 1 else next(iter(self._waiting))
        id, begin = self._waiting[name].popleft()
        if not self._waiting[name]:
            del self._waiting[name]
        self._fairness.launch(id, (id,), 1.0)
        self._fairness.ended(id)
        self._count -= 1
        return begin
