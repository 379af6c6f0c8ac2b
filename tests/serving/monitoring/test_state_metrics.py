"""A service shows whether it is ready, counts its events by name, and shows what waits for Prefect's server."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from serving.monitoring.state_metrics import SECONDS, StateMetrics
from tests.fixtures.fakes import run_virtually


def test_events_are_counted_by_name():
    registry = CollectorRegistry()
    metrics = StateMetrics(registry)
    for name in ("pliant.alarm", "pliant.rollback", "pliant.alarm"):
        metrics.emitted(name)
    counts = [
        registry.get_sample_value("pliant_events_total", {"event": name})
        for name in ("pliant.alarm", "pliant.rollback")
    ]
    assert counts == [2, 1]


def test_whether_it_is_ready_and_what_waits_is_shown_anew_every_five_seconds():
    registry, state, shown = CollectorRegistry(), {"ready": True, "waiting": 3}, []
    metrics = StateMetrics(registry)

    async def main():
        task = asyncio.create_task(metrics.follow(lambda: state["ready"], lambda: state["waiting"]))
        for _ in range(3):
            await asyncio.sleep(0.4 * SECONDS)
            shown.append([registry.get_sample_value(f"pliant_{name}") for name in ("ready", "events_waiting")])
            state.update(ready=False, waiting=7)
        task.cancel()

    run_virtually(main())
    assert shown == [[1, 3], [1, 3], [0, 7]]
