"""What happens to the pending requests when a scheduler has failed: they go to a fresh one, the suspects last.

If an arrival made it fail, that request is to blame, and the others arrive again before it. If something else did, nobody
knows which request is to blame: they arrive one by one, each when the former has been launched or has its answer. A
request that is blamed twice is given up. Pure: the driver acts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pliant.protocol import Action, Arrived, Event, Launch

BLAMES = 2  # failures of the scheduler over one request, after which it is given up
ENDLESS = 10  # failures without an answer, beyond two a pending request, after which no fresh scheduler is made


class Recovery:
    """The requests that wait for a fresh scheduler, and whom former failures are blamed on."""

    def __init__(self) -> None:
        self._held: deque[int] = deque()
        self._blamed: dict[int, int] = {}  # failures, by request
        self._apart = False  # one by one
        self._trial: int | None = None  # the one that was given last, while it waits
        self._failures = 0  # since the latest answer

    def is_hopeless(self, pending: int) -> bool:
        """Count a failure, and return whether there were too many without an answer between them."""
        self._failures += 1
        return self._failures > 2 * pending + ENDLESS

    def begin(self, event: Event, pending: Iterable[int]) -> int | None:
        """Hold all pending requests after a failure over `event`. Return the request that is to be given up, if any."""
        culprit = event.request.id if isinstance(event, Arrived) else self._trial
        self._trial = None
        if culprit is None:
            self._apart = True
        else:
            self._blamed[culprit] = self._blamed.get(culprit, 0) + 1
        present = set(pending)
        self._blamed = {id: count for id, count in self._blamed.items() if id in present}
        given_up = culprit if culprit is not None and self._blamed.get(culprit, 0) >= BLAMES else None
        present.discard(-1 if given_up is None else given_up)
        self._held = deque(sorted(present, key=lambda id: (self._blamed.get(id, 0), id)))
        return given_up

    def next(self) -> int | None:
        """Return the request that arrives next at the fresh scheduler; None for now, or if there is none."""
        if self._apart and self._trial is not None:
            return None
        if not self._held:
            self._apart = False
            return None
        request = self._held.popleft()
        self._trial = request if self._apart else None
        return request

    def takes(self, request: int) -> bool:
        """Hold a new request behind those that wait for the fresh scheduler, and return whether any do."""
        if not self._held:
            return False
        self._held.append(request)
        return True

    def note(self, action: Action) -> bool:
        """Note an action of the scheduler. Return whether the next request can arrive because of it."""
        if isinstance(action, Launch):
            over = self._trial in action.requests
        else:
            self._failures, over = 0, self._trial == action.request
        if over:
            self._trial = None
        return over

    def forget(self, request: int) -> bool:
        """Note that the client of a request has left. Return whether the scheduler does not know the request."""
        if request in self._held:
            self._held.remove(request)
            return True
        if self._trial == request:
            self._trial = None
        return False
