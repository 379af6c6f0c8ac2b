"""The champion of the tokens system in the registry: a backbone, the tasks trained on it, and its profile."""

from __future__ import annotations

from pliant.errors import RegistryError
from pliant.flows.champions import fetch, fetch_champions
from pliant.flows.release import open_registry, retried
from pliant.flows.settings import Settings
from pliant.flows.tokens.stages import Bundle
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PROFILE, TOKENS_TASK
from pliant.tokens.artifact import Backbone, Profile, Task


def load_champion(settings: Settings) -> Bundle | None:
    """Return what is served now; None before the first release."""
    registry = open_registry(settings, "tokens")
    if not registry.exists() or retried(lambda: registry.version(TOKENS_BACKBONE)) is None:
        return None
    backbone, _, tasks = champion_models(registry)
    profile = fetch(registry, Profile, TOKENS_PROFILE)[0]
    return Bundle(backbone, tuple(task.served_in(profile.precision) for task in tasks), profile)


def task_digest(settings: Settings, name: str) -> str:
    """Return the digest of the champion task of this name. Raises `RegistryError` where there is none."""
    registry = open_registry(settings, "tokens")
    published = retried(lambda: registry.version(TOKENS_TASK + name))
    if published is None:
        raise RegistryError(f"the registry holds no champion of {TOKENS_TASK}{name}")
    return published.digest


def champion_models(registry: MlflowRegistry) -> tuple[Backbone, str, list[Task]]:
    """Return the champion backbone, its digest and its tasks, without those that were made for another backbone."""
    backbone, published = fetch(registry, Backbone, TOKENS_BACKBONE)
    tasks = [task for task, _ in fetch_champions(registry, Task, TOKENS_TASK) if task.backbone == published.digest]
    return backbone, published.digest, tasks
