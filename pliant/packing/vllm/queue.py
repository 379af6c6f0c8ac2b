"""The waiting queue that vLLM's scheduler sees: it holds all waiting requests, and offers only those that were admitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue


class AdmittedFirst(RequestQueue):
    """Waiting requests by name. Only those of the last `offer` come to the front; without one the queue looks empty."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        self._offered: deque[Any] = deque()

    def offer(self, names: Sequence[str]) -> None:
        """Offer these waiting requests, in this order, and no others. Names of others than waiting ones are ignored."""
        self._offered = deque(self._held[name] for name in names if name in self._held)

    def add_request(self, request: Any) -> None:
        self._held[request.request_id] = request

    def pop_request(self) -> Any:
        request = self._offered.popleft()
        del self._held[request.request_id]
        return request

    def peek_request(self) -> Any:
        if not self._offered:
            raise IndexError("peek from an empty queue")
        return self._offered[0]

    def prepend_request(self, request: Any) -> None:
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Any) -> None:
        self.remove_requests((request,))

    def remove_requests(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if self._held.pop(request.request_id, None) is not None and request in self._offered:
                self._offered.remove(request)

    def __bool__(self) -> bool:
        return bool(self._offered)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._held.values()))

    def __contains__(self, request: object) -> bool:
        return getattr(request, "request_id", None) in self._held
