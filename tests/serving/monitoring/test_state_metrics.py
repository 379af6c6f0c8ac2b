"""A service shows whether it is ready, counts its events by name, and shows what waits for Prefect or cannot be written."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from pliant.serving.metrics import LOOK_SECONDS, StateMetrics
from pliant.serving.state_file import Writing


@pytest.mark.virtual
async def test_the_state_is_shown_anew_every_five_seconds_and_trouble_with_the_disk_is_logged_where_it_begins_and_ends(
    tmp_path, caplog
):
    registry, state, shown = CollectorRegistry(), {"ready": True, "waiting": 3}, []
    metrics, first, second = StateMetrics(registry), Writing("watch", tmp_path), Writing("watch", tmp_path)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"pliant_{name}", labels)

    task = asyncio.create_task(metrics.follow(lambda: state["ready"], lambda: 2, lambda: state["waiting"]))
    for change in (
        lambda: second.failed("it is full"),
        lambda: second.failed("it is full"),
        second.succeeded,
        first,
    ):
        await asyncio.sleep(0.9 * LOOK_SECONDS)
        shown.append((value("ready"), value("devices"), value("events_waiting"), value("write_failing", what="watch")))
        state.update(ready=False, waiting=7)
        (change if callable(change) else first.succeeded)()
    task.cancel()
    assert shown == [(1, 2, 3, 0), (0, 2, 7, 1), (0, 2, 7, 1), (0, 2, 7, 0)]
    assert [record.message for record in caplog.records] == ["it is full", f"watch: {tmp_path} is written again"]
    for name in ("pliant.alarm", "pliant.rollback", "pliant.alarm"):
        metrics.emitted(name)
    assert [value("events_total", event=name) for name in ("pliant.alarm", "pliant.rollback")] == [2, 1]
