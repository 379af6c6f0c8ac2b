"""Runs the packing flows from a command line (see flows/run.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows import settings
from flows.packing import config as packing_config
from flows.run import announce, run, with_prefect


def run_flow(config: str | None, overrides: Mapping[str, Any], new_task: bool = False) -> dict[str, Any]:
    """Run the flow here and return its release as plain values. A failed stage is raised as one sentence.

    `new_task`: whether it may release a task that the live release lacks.
    """
    flow_config = packing_config.read(Path(config) if config else None, overrides)
    announce(packing_config.sizes(flow_config), flow_config.device)
    with with_prefect(settings.read()):
        return run_connected(config, overrides, new_task)


def run_connected(config: str | None, overrides: Mapping[str, Any], new_task: bool = False) -> dict[str, Any]:
    """Run the flow with Prefect's server already there."""
    from flows.packing import flow

    return run(flow.packing, config, overrides, new_task=new_task)


def run_retraining(
    observed: Path | None = None, config: str | None = None, overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Retrain from what a service observed (`observed`, or the files of every champion) and return the release."""
    with with_prefect(settings.read()):
        return run_retraining_connected(observed, config, overrides)


def run_retraining_connected(
    observed: Path | None = None, config: str | None = None, overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Retrain with Prefect's server already there."""
    from flows.packing import retrain

    path = str(observed) if observed else None
    return run(lambda file, laid: retrain.packing_retrain(path, file, laid), config, overrides or {})
