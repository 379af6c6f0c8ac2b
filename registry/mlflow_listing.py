"""The last runs of a system in MLflow, for people: name, status, when, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pliant.registry.mlflow_run import registry_errors
from pliant.registry.mlflow_store import MlflowRegistry


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run of a flow. `started`: ISO 8601, UTC; `seconds`: None while it runs; `reason`: why it was started, if noted."""

    id: str
    name: str
    status: str  # MLflow's word: RUNNING, FINISHED, FAILED, KILLED
    started: str
    seconds: float | None
    reason: str = ""


def recent_runs(registry: MlflowRegistry, count: int) -> list[RunSummary]:
    """Return the newest runs of the registry's experiment, the newest first. Raises `RegistryError`."""
    client = registry.connect()
    with registry_errors(registry.tracking_uri, "the runs could not be listed"):
        experiment = client.get_experiment_by_name(registry.experiment)
        if experiment is None:
            return []
        order = ["attributes.start_time DESC"]
        runs = client.search_runs([experiment.experiment_id], max_results=count, order_by=order)
    return [_summary(run.info, run.data.tags) for run in runs]


def _summary(info: Any, tags: Mapping[str, str]) -> RunSummary:
    started = datetime.fromtimestamp(info.start_time / 1000, UTC).isoformat(timespec="seconds")
    seconds = (info.end_time - info.start_time) / 1000 if info.end_time else None
    return RunSummary(info.run_id, info.run_name, info.status, started, seconds, tags.get("pliant.reason", ""))
