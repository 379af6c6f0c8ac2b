"""Runs the tokens flow from a command line (see flows/run.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows import settings
from flows.run import announce, run, with_prefect
from flows.tokens import config as tokens_config


def run_flow(config: str | None, overrides: Mapping[str, Any], new_task: bool = False) -> dict[str, Any]:
    """Run the flow here and return its release as plain values. A failed stage is raised as one sentence.

    `new_task`: whether it may release a task that the live release lacks.
    """
    flow_config = tokens_config.read(Path(config) if config else None, overrides)
    announce(tokens_config.sizes(flow_config), flow_config.device)
    with with_prefect(settings.read(), meanwhile=load):
        return run_connected(config, overrides, new_task)


def load() -> None:
    """Import what the flow runs, which takes seconds: to be done while Prefect's server starts."""
    from flows.tokens import flow  # noqa: F401


def run_connected(config: str | None, overrides: Mapping[str, Any], new_task: bool = False) -> dict[str, Any]:
    """Run the flow with Prefect's server already there."""
    from flows.tokens import flow

    return run(flow.tokens, config, overrides, new_task=new_task)
