"""How the flows' stages are kept and retried by Prefect. Knows no system."""

from __future__ import annotations

from typing import Any

from prefect.context import TaskRunContext

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
