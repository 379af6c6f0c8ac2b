"""The kinds of Prefect flow and task, and how its UI shows a release. Knows no system.

Every flow and every task has a time limit (flows/watch/deployments.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from prefect import Flow, Task, flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from pliant.errors import RefusedError, RegistryError
from pliant.flows import retention, settings
from pliant.flows.release import OUTAGE_WAITS, Release
from pliant.flows.watch import deployments
from pliant.flows.watch.notify import emit_champion
from pliant.flows.watch.triggered import triggered

P = ParamSpec("P")
R = TypeVar("R")


def system_flow(name: str, system: str) -> Callable[[Callable[P, dict[str, Any]]], Flow[P, dict[str, Any]]]:
    """A flow that releases a system; its parameter `reason` says why an alarm started it (flows/watch/triggered.py)."""

    def decorate(function: Callable[P, dict[str, Any]]) -> Flow[P, dict[str, Any]]:
        seconds = deployments.read_limits().flow
        return flow(name=name, validate_parameters=True, timeout_seconds=seconds)(triggered(system, function))

    return decorate


def limited_task(name: str, **more: Any) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task with a time limit. Prefect keeps no result of it: what a stage makes is in the store."""
    return task(
        name=name, timeout_seconds=deployments.read_limits().task, cache_policy=NO_CACHE, persist_result=False, **more
    )


def publish_task(name: str = "publish") -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task that writes to the registry, and is tried again where that is busy, or away for less than a minute or so."""
    waits = list(OUTAGE_WAITS)
    return limited_task(name, retries=len(waits), retry_delay_seconds=waits, retry_condition_fn=is_transient)


def is_transient(task: Any, run: Any, state: Any) -> bool:
    """Whether a failure may pass by itself, such as a busy registry; not bad input. The hub's client retries by itself."""
    del task, run
    error = state.result(raise_on_failure=False)
    return isinstance(error, RegistryError | OSError) and not isinstance(error, RefusedError)


RETRIED_DOWNLOAD: Mapping[str, Any] = {"retries": 2, "retry_delay_seconds": 5, "retry_condition_fn": is_transient}


def show_release(system: str, summary: str, released: Release) -> None:
    """Show in Prefect's UI what was released, and emit the event of a new champion; `summary`: what the gate said."""
    outcome = "promoted" if released.promoted else "not promoted"
    lines = [f"- `{name}` version {version}" for name, version in released.versions.items()]
    text = "\n".join([f"# {system}: {outcome}", "", summary, "", *lines])
    create_markdown_artifact(text, key=f"{system}-release", description="What the gate said and what was published")
    emit_champion(system, released)


@limited_task("clean")
def clean(system: str) -> None:
    """Remove what is no longer needed; the last stage of every flow."""
    retention.after_flow(settings.read(), system)
