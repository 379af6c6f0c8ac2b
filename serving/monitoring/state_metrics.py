"""Prometheus metrics of a service as a whole: whether a device is up, and the events that it sends (serving/events.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from pliant.serving.unwritten import writings

SECONDS = 5.0  # between two looks


class StateMetrics:
    """What one service says of itself."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        text = "1 if the service is ready as /readyz says, else 0"
        self._ready = Gauge("pliant_ready", text, registry=registry, multiprocess_mode="livemin")
        text = "Events that the service has sent or will send, by name"
        self._events = Counter("pliant_events", text, ("event",), registry=registry)
        text = "Events that Prefect's server has not taken yet"
        self._waiting = Gauge("pliant_events_waiting", text, registry=registry, multiprocess_mode="livesum")
        text = "1 while files cannot be written, as on a full disk, else 0"
        self._failing = Gauge("pliant_write_failing", text, ("what",), registry=registry, multiprocess_mode="livemax")

    def emitted(self, name: str) -> None:
        """Count an event of this name."""
        self._events.labels(name).inc()

    async def follow(self, ready: Callable[[], bool], waiting: Callable[[], int]) -> None:
        """Show whether it is ready, how many events wait and what cannot be written, every `SECONDS` until cancelled."""
        while True:
            self._ready.set(ready())
            self._waiting.set(waiting())
            for what, failing in writings().items():
                self._failing.labels(what).set(failing)
            await asyncio.sleep(SECONDS)
