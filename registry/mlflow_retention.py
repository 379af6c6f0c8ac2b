"""What of a registry nobody needs any more: old versions without an alias, and what publishing left when it failed.

Only models and experiments of Pliant's names are looked at, and nothing that is younger than a day, since it may be part of
a publication under way. A version is needed if it has an alias, if it is one of the newest, or if a needed version's tags
name it. MLflow keeps what is removed here as deleted, without its files; `mlflow gc` takes away the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pliant.registry.folder import size_of
from pliant.registry.mlflow_client import DIGEST, all_pages, find_versions, is_local, local_folder, unless_missing
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import release, system_of
from pliant.registry.releases import FORMER, NOTES

DAY = 86_400.0  # seconds
Key = tuple[str, int]
"""A registered model and the number of a version."""


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Something to remove. `kind`: "version", "model" (one that MLflow logged and nobody registered) or "run"."""

    kind: str
    name: str
    ids: tuple[str, ...]  # version: model, number and, if known, the logged model; else the id alone
    size: int  # bytes on this machine's disk, 0 if they are elsewhere
    reason: str


def unneeded(registry: MlflowRegistry, prefix: str, newest: int, days: float) -> tuple[Unneeded, ...]:
    """Return what can go of the models whose names begin with `prefix`: the versions first, then what else is left.

    `newest`: versions to keep of each model, besides those with an alias. `days`: after which the run of a version that is
    gone is removed too. Raises `RegistryError`.
    """
    if not registry.exists():
        return ()
    from mlflow.entities import ViewType

    system = system_of(prefix)
    releases = release(system) if system else ""
    unused: list[Unneeded] = []
    with registry.asking("the registry could not be looked through") as client:
        models = [model for model in registry.models() if model.name == releases or model.name.startswith(prefix)]
        versions = {
            (model.name, int(version.version)): version
            for model in models
            for version in find_versions(client, model.name)
        }
        experiment = client.get_experiment_by_name(registry.experiment)
        ids = [experiment.experiment_id] if experiment is not None else []
        active = {"run_view_type": ViewType.ACTIVE_ONLY}
        logged = all_pages(lambda token: client.search_logged_models(ids, page_token=token)) if ids else []
        runs = all_pages(lambda token: client.search_runs(ids, page_token=token, **active)) if ids else []

        tags = {key: dict(version.tags) for key, version in versions.items()}
        young = {key for key, version in versions.items() if _age(version.creation_timestamp) < DAY}
        needed = needed_versions({model.name: dict(model.aliases) for model in models}, tags, newest) | young
        sources = {versions[key].source for key in needed}  # of a copied version it is the same
        for (name, number), version in sorted(versions.items()):
            if (name, number) not in needed:
                of = [each.model_id for each in logged if version.source not in sources and _is_source(each, version)]
                size = _size(version.source)
                entry = (f"{name} version {number}", (name, str(number), *of), size, "old, without an alias")
                unused.append(Unneeded("version", *entry))
        for model in logged:
            registered = any(_is_source(model, version) for version in versions.values())
            if not registered and _age(model.creation_timestamp) > DAY:
                size = _size(model.artifact_location)
                unused.append(
                    Unneeded("model", f"logged model {model.name}", (model.model_id,), size, "never registered")
                )
        kept = {versions[key].run_id for key in needed}
        for info in (run.info for run in runs):
            ended = info.status == "FINISHED"
            if _age(info.start_time) > days * DAY and info.run_id not in kept:
                without = f"older than {days:g} days, without a version"
                reason = without if ended else f"{info.status.lower()}, published nothing"
                size = _size(info.artifact_uri)
                unused.append(Unneeded("run", f"run {info.run_name}", (info.run_id,), size, reason))
    return tuple(unused)


def remove(registry: MlflowRegistry, item: Unneeded) -> None:
    """Remove it, unless an alias has moved to it meanwhile. Raises `RegistryError`."""
    with registry.asking(f"{item.name} could not be removed") as client:
        match item.kind, item.ids:
            case "version", (name, number, *logged):
                served = registry.version(name)
                aliased = map(str, client.get_registered_model(name).aliases.values())
                if number in aliased or (served is not None and str(served.version) == number):
                    return
                client.delete_model_version(name, number)
                for model in logged:
                    _remove_logged(client, model)
            case "model", (model,):
                _remove_logged(client, model)
            case _, (run,):
                address = client.get_run(run).info.artifact_uri
                client.delete_run(run)
                _remove_files(address)


def needed_versions(
    aliases: Mapping[str, Mapping[str, str]], tags: Mapping[Key, Mapping[str, str]], newest: int
) -> frozenset[Key]:
    """Return the versions that an alias names, the newest, and all that the tags of these name, and so on."""
    by_model: dict[str, list[int]] = {}
    by_digest: dict[str, list[Key]] = {}
    for (name, number), known in tags.items():
        by_model.setdefault(name, []).append(number)
        if known.get(DIGEST):
            by_digest.setdefault(known[DIGEST], []).append((name, number))
    waiting = {(name, int(number)) for name, known in aliases.items() for number in known.values()}
    waiting |= {(name, number) for name, numbers in by_model.items() for number in sorted(numbers)[-newest:] if newest}
    needed: set[Key] = set()
    while waiting:
        key = waiting.pop()
        if key in tags and key not in needed:
            needed.add(key)
            # A tag may hold the digest of another version; a number, of a version of some model of the system: that
            # number of all of them; or an object whose names are models and whose values are numbers, alone or first in
            # a list (a release). The release before a release is needed only as long as it is one of the newest.
            for tag, text in tags[key].items():
                if tag.startswith("pliant.") and tag not in (DIGEST, FORMER, *NOTES):
                    waiting |= set(by_digest.get(text, ()))
                    if text.isdecimal():
                        waiting |= {(name, int(text)) for name in by_model}
                    elif text.startswith("{"):
                        with suppress(ValueError):
                            waiting |= set(_named_in(json.loads(text), by_model.keys()))
    return frozenset(needed)


def _named_in(value: Any, models: Set[str]) -> Iterator[Key]:
    if isinstance(value, dict):
        for name, item in value.items():
            number = item[0] if isinstance(item, list) and item else item
            if name in models and isinstance(number, int | str) and str(number).isdecimal():
                yield name, int(number)
            yield from _named_in(item, models)


def _age(milliseconds: int | None) -> float:
    return time.time() - (milliseconds or 0) / 1000


def _is_source(logged: Any, version: Any) -> bool:
    """Whether a version was registered from this logged model: what lists versions does not always give `model_id`."""
    return logged.model_id in (version.model_id or "", *version.source.split("/"))


def _remove_logged(client: Any, model: str) -> None:
    logged = unless_missing(lambda: client.get_logged_model(model))
    if logged is not None:
        client.delete_logged_model(model)
        _remove_files(logged.artifact_location)


def _remove_files(address: str) -> None:
    """Remove the files at an artifact's address, where this machine or a known store holds them."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    with suppress(NotImplementedError):
        get_artifact_repository(address).delete_artifacts()


def _size(address: str | None) -> int:
    return size_of(local_folder(address)) if address and is_local(address) else 0
