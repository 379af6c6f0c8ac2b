"""How the flows' stages are kept and retried by Prefect, and how its UI shows a release. Knows no system."""

from __future__ import annotations

from typing import Any

from prefect.artifacts import create_markdown_artifact
from prefect.context import TaskRunContext

from flows.release import Release
from pliant.errors import RegistryError
from registry.store import FolderStore


def by_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """A stage's result is cached under its parameter `key`."""
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
