"""What a flow was asked to train, which the release keeps with every task, and whether somebody asked for each task.

A release keeps the configuration that made each of its tasks: the content of the file and the values laid over it, as they
were given, without secrets. A nightly run trains with those of the live release, so what is trained tomorrow is what is
served today. A task that the live release lacks is trained only if somebody asked for it. Knows no system and no Prefect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pliant.errors import InputError, PliantError, RegistryError
from pliant.flows.config import file_of, read_file
from pliant.flows.release import open_registry, retried
from pliant.flows.settings import Settings
from pliant.redaction import MASK, redact
from pliant.registry.names import prefix, task_of
from pliant.registry.releases import CONFIGURATION_LENGTH, RegistryRelease, configurations_text

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a flow is asked to train. `file`: the content of a TOML file, from `path` if somebody named it; `overrides`:
    values laid over its top level; `beneath`: those that a nightly run adds where nothing else is said; `tasks`: the
    registered models of the tasks that it has trained already, where a release kept it.
    """

    file: Values = field(default_factory=dict)
    overrides: Values = field(default_factory=dict)
    path: Path | None = None
    beneath: Values = field(default_factory=dict)
    tasks: frozenset[str] = frozenset()

    @property
    def source(self) -> Path | Values:
        """Return what a system's `config.read` takes first."""
        return self.path or self.file

    @property
    def laid_over(self) -> dict[str, Any]:
        """Return what a system's `config.read` takes as its overrides."""
        return {**self.beneath, **self.overrides}

    def names(self, keys: Sequence[str]) -> bool:
        """Whether a file that somebody named says which tasks to train, by one of these keys, and nothing replaces them."""
        return self.path is not None and any(key in self.file for key in keys) and not set(keys) & set(self.overrides)

    def to_json(self, tasks: Sequence[str], **more: Any) -> str:
        """Return it as a release keeps it, with the models of its tasks and without secrets."""
        values = {"file": self.file, "overrides": self.overrides, "tasks": sorted(tasks), **more}
        return json.dumps(_redacted(values), sort_keys=True, default=str)


Beneath = Callable[[Values, Path], dict[str, Any]]
"""Gives what a nightly run adds to a configuration's values where these say nothing of it; the path: the service's home."""


def to_train(
    project: Settings, system: str, config: str | None, overrides: Values | None, beneath: Beneath | None
) -> list[Configuration]:
    """Return what a run of a system's flow is to train, one after the other: one, but where a nightly run without a file
    trains with each configuration of the live release. `beneath`: of a nightly run. Raises `InputError`, `RegistryError`.
    """
    laid = dict(overrides or {})
    if beneath is not None and config is None:
        kept = kept_by(_live(project, system), system)
        given = [replace(each, overrides={**each.overrides, **laid}) for each in kept]
    else:
        path = file_of(config) if config else None
        given = [Configuration(read_file(path) if path else {}, laid, path)]
    if beneath is None:
        return given
    home = project.home_of(system)
    return [replace(each, beneath=beneath({**each.file, **each.overrides}, home)) for each in given]


def kept_by(release: RegistryRelease | None, system: str) -> list[Configuration]:
    """Return the configurations that made the tasks of a release, each once. Raises `RegistryError` where it keeps none."""
    if release is None:
        raise RegistryError(
            f"{system} has no release whose configuration could be trained with: run `pliant train {system}` first, or name "
            "one with --config FILE"
        )
    texts = dict.fromkeys(text for _, text in sorted(release.configurations.items()))
    if not texts:
        raise RegistryError(
            f"{release.name} keeps no configuration, as an earlier version of Pliant made it: run `pliant train {system}` "
            "again, or name one with --config FILE"
        )
    return [from_json(text, release) for text in texts]


def from_json(text: str, release: RegistryRelease) -> Configuration:
    """Return a configuration as a release or a run keeps it. Raises `RegistryError`."""
    if MASK in text:
        raise RegistryError(
            f"the configuration that {release.name} keeps had a secret, which was left out: name a file with --config FILE"
        )
    try:
        values = json.loads(text)
        return Configuration(
            values["file"], values["overrides"], None, values.get("beneath", {}), frozenset(values["tasks"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryError(f"the configuration that {release.name} keeps cannot be read: {error}") from error


def of_task(project: Settings, system: str, model: str) -> Configuration:
    """Return the configuration that made a task of the live release, by its model; an empty one where it keeps none."""
    live = _live(project, system)
    return from_json(live.configurations[model], live) if live and live.configurations.get(model) else Configuration()


def to_keep(
    project: Settings, system: str, given: Configuration, models: Sequence[str], new_task: bool, naming: Sequence[str]
) -> dict[str, str]:
    """Return what a release is to keep: the registered model of each task -> the configuration, as JSON.

    To be called before anything is trained; `naming`: keys that say which tasks are trained. Raises `PliantError` for a task
    that the live release lacks and that nobody asked for, and `InputError` for a configuration that is too long.
    """
    live = _live(project, system)
    registry = open_registry(project, system)
    names = retried(lambda: registry.versions(prefix(system)) if registry.exists() else {})
    served = {name for name in names if task_of(name) is not None}
    wanted = given.names(naming) or new_task or not served
    for model in models:
        if not wanted and model not in {*served, *given.tasks}:
            present = ", ".join(str(task_of(name)) for name in sorted(served))
            raise PliantError(
                f"task {task_of(model)!r} is not in the live release of {system} ({present}): name it in --config FILE or "
                "pass --new-task"
            )
    text = given.to_json(models)
    kept = dict.fromkeys(models, text)
    length = len(configurations_text({**(live.configurations if live else {}), **kept}))
    if length > CONFIGURATION_LENGTH:
        raise InputError(
            "length of the configuration", length, f"at most {CONFIGURATION_LENGTH} characters, as the release keeps it"
        )
    return kept


def _live(project: Settings, system: str) -> RegistryRelease | None:
    registry = open_registry(project, system)
    return retried(lambda: registry.release(system) if registry.exists() else None)


def _redacted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(each) for each in value]
    return redact(value) if isinstance(value, str) else value
