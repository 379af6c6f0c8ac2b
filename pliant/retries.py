"""Which requests were in launches that failed, and with whom each runs again: so that one bad request fails alone.

A launch that fails may fail because of one of its requests. Where the device is lost with it, each of its requests runs
alone from then on, so that at most one further device is lost by each bad one. Where the device lives, its requests run
again by halves, which costs little and keeps batches. A request is given up when it has failed often enough, the last
time alone. Knows nothing of queues or devices.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import count


class Retries:
    """The requests that have failed and still wait or run. `attempts`: failed launches, the last alone, of a request."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._tries: dict[int, int] = {}  # failed launches, by request
        self._group: dict[int, int] = {}  # requests that may run together have the same number
        self._numbers = count()

    def __bool__(self) -> bool:
        """Return whether any request has failed."""
        return bool(self._tries)

    def __contains__(self, request: int) -> bool:
        """Return whether the request has failed."""
        return request in self._tries

    def failed(self, requests: Sequence[int], alone: bool, lost: bool) -> list[int]:
        """Note that a launch of these requests failed, and return those that are given up.

        `alone`: no other request was in the launch, not even one whose client has left since. `lost`: so is the device.
        """
        for request in requests:
            self._tries[request] = self._tries.get(request, 0) + 1
        given_up = [request for request in requests if alone and self._tries[request] >= self._attempts]
        for request in given_up:
            self.forget(request)
        size = 1 if lost else max(1, len(requests) // 2)
        for start in range(0, 0 if given_up else len(requests), size):
            self._group |= dict.fromkeys(requests[start : start + size], next(self._numbers))
        return given_up

    def together(self, requests: Sequence[int]) -> Sequence[int]:
        """Return those of the requests that run together now: all, unless some have failed.

        Then these come first: the first of them, with those of its group.
        """
        if not self._group:
            return requests
        first = next((request for request in requests if request in self._group), None)
        if first is None:
            return requests
        group = self._group[first]
        return [request for request in requests if self._group.get(request) == group]

    def forget(self, request: int) -> None:
        """Note that the request is answered, dropped or cancelled, or has gone on to another level."""
        if self._tries:
            self._tries.pop(request, None)
            self._group.pop(request, None)

    def check(self, present: Container[int]) -> None:
        """Raise `AssertionError` if a request is kept that neither waits nor runs."""
        assert self._tries.keys() == self._group.keys(), "a failed request without a group"
        assert all(request in present for request in self._tries), "tries of a request that is gone"
