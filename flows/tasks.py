"""How the flows' stages are kept and retried by Prefect, and how its UI shows a release. Knows no system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.artifacts import create_markdown_artifact
from prefect.context import TaskRunContext

from flows.release import Release
from pliant.errors import RegistryError
from registry.store import FolderStore

P = ParamSpec("P")
R = TypeVar("R")


def kept(name: str, **more: Any) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A stage whose result is cached, under its parameter `key`."""
    return task(name=name, cache_key_fn=_by_key, persist_result=True, result_serializer="json", **more)


def fetched(name: str, **more: Any) -> Callable[[Callable[P, R]], Task[P, R]]:
    """The same of one that may have to fetch a model."""
    return kept(name, retries=2, retry_delay_seconds=5, retry_condition_fn=passing, **more)


def _by_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    del context
    key: str = parameters["key"]
    return key


def passing(task: Any, run: Any, state: Any) -> bool:
    """Retry what may pass by itself, such as a busy registry; not bad input. The hub's client has retries of its own."""
    del task, run
    return isinstance(state.result(raise_on_failure=False), RegistryError | OSError)


def fresh(stage_task: Any, store: FolderStore, key: str) -> Any:
    """The task, told to ignore a cached result whose artifact is no longer in the store."""
    return stage_task.with_options(refresh_cache=not store.has(key))


def show_release(system: str, told: str, released: Release) -> None:
    """`told`: in Markdown, what the gate said."""
    outcome = "promoted" if released.promoted else "not promoted"
    lines = [f"- `{name}` version {version}" for name, version in released.versions.items()]
    text = "\n".join([f"# {system}: {outcome}", "", told, "", *lines])
    create_markdown_artifact(text, key=f"{system}-release", description="What the gate said and what was published")
