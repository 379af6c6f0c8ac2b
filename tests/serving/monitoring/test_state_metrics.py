"""A service shows whether it is ready, counts its events by name, and shows what waits for Prefect or cannot be written."""

from __future__ import annotations

import asyncio

from pliant.serving.monitoring.state_metrics import SECONDS, StateMetrics
from prometheus_client import CollectorRegistry

from pliant.serving.unwritten import Writing
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


def test_what_cannot_be_written_is_shown_and_said_once_until_it_can_be_written_again(tmp_path, caplog):
    registry, shown = CollectorRegistry(), []
    metrics, first, second = StateMetrics(registry), Writing("watch", tmp_path), Writing("watch", tmp_path)

    async def main():
        task = asyncio.create_task(metrics.follow(lambda: True, lambda: 0))
        for change in (lambda: second.failed("it is full"), lambda: second.failed("it is full"), second.succeeded):
            await asyncio.sleep(SECONDS)
            shown.append(registry.get_sample_value("pliant_write_failing", {"what": "watch"}))
            change()
        first.succeeded()
        await asyncio.sleep(SECONDS)
        shown.append(registry.get_sample_value("pliant_write_failing", {"what": "watch"}))
        task.cancel()

    run_virtually(main())
    assert shown == [0, 1, 1, 0]
    assert [record.message for record in caplog.records] == ["it is full", f"watch: {tmp_path} is written again"]
