"""Moves a system between its releases: back to a former one, to one by its number, and to one that is tried first.

A release is never altered, so going back and forth is moving the alias `champion`, by one write. A challenger is a release
without that alias: nobody serves it but a service that tries it (`shadow`, `canary`) or an operator who promotes it. Also
lists what there was: the releases, and the runs that made them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pliant.errors import RegistryError, UnreachableError
from pliant.registry import decisions, releases
from pliant.registry.mlflow_store import CHALLENGER, CHAMPION, PREVIOUS, MlflowRegistry
from pliant.registry.names import release as release_model
from pliant.registry.releases import LEFT, RegistryRelease

SHADOW, CANARY = "shadow", "canary"
TRIALS = (SHADOW, CANARY)
"""Aliases of a release that is being tried on real traffic; the service that tries it moves them."""
WAITING, ASKS, REFUSED = "waiting", "asks", "refused"
"""States of a challenger: the gate let it pass, so that a service or else a person may try it, or refused it."""
SECONDS = "seconds"
"""Metric of a run: how long the whole flow took."""
TAKEN_BACK = decisions.TAKEN_BACK
"""State of a release that was the champion and is so no more because it was bad; of another former champion it is LEFT."""


def history(registry: MlflowRegistry, system: str) -> list[RegistryRelease]:
    """Return all releases of a system that are in the registry, the newest first. Raises `RegistryError`."""
    name = release_model(system)
    known = [registry.release(system, number) for number in reversed(registry.numbers(name))]
    return [release for release in known if release is not None]


def aliases(registry: MlflowRegistry, system: str) -> dict[str, int]:
    """Return alias -> number of a system's releases; empty without any. Raises `RegistryError`."""
    name = release_model(system)
    models = [model for model in registry.models(name) if model.name == name]
    return {alias: int(number) for model in models for alias, number in model.aliases.items()}


def switch(
    registry: MlflowRegistry, system: str, number: int, reason: str, state: str = LEFT
) -> tuple[RegistryRelease, RegistryRelease]:
    """Serve release `number` from now on, and return the release that was served until now, and that one.

    The one that is left gets the state and the reason as tags. Raises `RegistryError` where there is no such release, it
    is served already, or it is not whole.
    """
    name = release_model(system)
    with registry.asking(f"{system} could not be released") as client, registry.locked(system) as check:
        present, wanted = registry.release(system), registry.release(system, number)
        if present is None:
            raise RegistryError(f"{system} has no release that is served: run `pliant train {system}` first")
        if wanted is None:
            known = ", ".join(str(release.number) for release in history(registry, system))
            raise RegistryError(f"{system} has no release {number}; there are: {known}")
        if wanted.number == present.number:
            raise RegistryError(f"release {number} of {system} is served already")
        if not wanted.versions:
            raise RegistryError(f"{wanted.name} names no versions that could be served")
        for model, version in wanted.versions.items():
            try:
                published = registry.version(model, version)
            except UnreachableError:
                raise
            except RegistryError:
                published = None
            if published is not None:
                registry.check_signed(published)
            if published is None or published.digest != wanted.digests.get(model) or not registry.intact(published):
                raise RegistryError(f"{wanted.name} is not whole: version {version} of {model} is gone or was altered")
        check()
        if state == TAKEN_BACK:
            decisions.write(registry, TAKEN_BACK, present, reason, wanted)
        else:
            decisions.write(registry, decisions.PROMOTED, wanted, reason, present)
        client.set_registered_model_alias(name, PREVIOUS, str(present.number))
        client.set_registered_model_alias(name, CHAMPION, str(number))  # the commit
        registry.show_release(wanted)
        note(registry, present, state, reason)
        note(registry, wanted, "", reason)
        _end_trial(registry, system, number)
    return present, wanted


def allow(registry: MlflowRegistry, system: str, number: int, reason: str) -> RegistryRelease:
    """Let what was taken back be released or tried again, and return that release. Raises `RegistryError`.

    A challenger to the champion of today waits again, so that a service tries it.
    """
    release, present = registry.release(system, number), registry.release(system)
    if release is None or decisions.kept_out(registry, system, release.digests) is None:
        raise RegistryError(
            f"release {number} of {system} is none that is kept out: `pliant log {system}` lists what was"
        )
    decisions.write(registry, decisions.ALLOWED, release, reason, present)
    proposed = registry.release(system, CHALLENGER)
    waits = (
        proposed is not None and proposed.number == number and present is not None and release.former == present.number
    )
    note(registry, release, WAITING if waits else LEFT, reason)
    return release


def finish(registry: MlflowRegistry, system: str, reason: str, state: str = LEFT) -> None:
    """Write down what `switch` left undone if its process was ended after its commit; nothing where nothing is missing.

    A champion has no state, and no alias of a challenger: they are what `switch` takes away last. Raises `RegistryError`.
    """
    with registry.asking(f"{system} could not be marked"), registry.locked(system):
        served, left = registry.release(system), registry.release(system, PREVIOUS)
        if served is None:
            return
        if served.state:
            registry.show_release(served)
            if left is not None and not left.state:
                note(registry, left, state, reason)
            note(registry, served, "", reason)
        _end_trial(registry, system, served.number)


def unfinished(registry: MlflowRegistry, system: str) -> list[RegistryRelease]:
    """Return the releases that are marked as tried, or as challengers, and are not: their trial's end was not written down.

    They are the champion, if `switch` was ended before its last write, and those of former champions' trials.
    """
    served, challenger = registry.release(system), registry.release(system, CHALLENGER)
    named = aliases(registry, system)
    if served is None:
        return []
    numbers = {named[alias] for alias in TRIALS if alias in named}
    if challenger is not None and challenger.former == served.number:
        numbers.discard(challenger.number)
    if served.state or named.get(CHALLENGER) == served.number:
        numbers.add(served.number)
    known = [registry.release(system, number) for number in sorted(numbers)]
    return [release for release in known if release is not None]


def former_of(registry: MlflowRegistry, system: str) -> int:
    """Return the number of the release before the present one. Raises `RegistryError` where there is none to go back to."""
    present = registry.release(system)
    if present is None:
        raise RegistryError(f"{system} has no release that is served: run `pliant train {system}` first")
    if present.former is None:
        raise RegistryError(f"release {present.number} of {system} replaced none: there is nothing to go back to")
    if registry.release(system, present.former) is None:
        gone = f"release {present.former} of {system} is not in the registry any more"
        raise RegistryError(f"{gone}: name another one with --to")
    return present.former


def note(registry: MlflowRegistry, release: RegistryRelease, state: str, reason: str) -> None:
    """Write on a release in which state it is since now, and why (`descriptions.note`). Raises `RegistryError`."""
    with registry.asking(f"{release.name} could not be marked") as client:
        releases.note(client, release, state, reason)


def label(registry: MlflowRegistry, release: RegistryRelease, alias: str | None) -> None:
    """Give a release that is tried the alias `shadow` or `canary`, and take the other one away; None: take both away."""
    name, now = release_model(release.system), aliases(registry, release.system)
    with registry.asking(f"{release.name} could not be marked") as client:
        for trial in TRIALS:
            if trial == alias and now.get(trial) != release.number:
                client.set_registered_model_alias(name, trial, str(release.number))
            elif trial != alias and now.get(trial) == release.number:
                client.delete_registered_model_alias(name, trial)


def _end_trial(registry: MlflowRegistry, system: str, number: int) -> None:
    """Take away the aliases of a release on trial that has become the champion."""
    client, name = registry.connect(), release_model(system)
    for alias, at in aliases(registry, system).items():
        if at == number and alias in (CHALLENGER, *TRIALS):
            client.delete_registered_model_alias(name, alias)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run of a flow. `started`: when it published, ISO 8601, UTC; `seconds`: with its stages where that was noted, None
    while it runs; `reason`: why it was started, if noted.
    """

    id: str
    name: str
    status: str  # MLflow's word: RUNNING, FINISHED, FAILED, KILLED
    started: str
    seconds: float | None
    reason: str = ""


def recent_runs(registry: MlflowRegistry, count: int) -> list[RunSummary]:
    """Return the newest runs of the registry's experiment, the newest first. Raises `RegistryError`."""
    summaries = []
    for run in _runs(registry, max_results=count, order_by=["attributes.start_time DESC"]):
        info = run.info
        started = datetime.fromtimestamp(info.start_time / 1000, UTC).isoformat(timespec="seconds")
        seconds = run.data.metrics.get(SECONDS, (info.end_time - info.start_time) / 1000) if info.end_time else None
        reason = run.data.tags.get("pliant.reason", "")
        summaries.append(RunSummary(info.run_id, info.run_name, info.status, started, seconds, reason))
    return summaries


def spent(registry: MlflowRegistry, span: timedelta) -> float:
    """Return the seconds that runs of flows took which published, or failed, within so long. Raises `RegistryError`."""
    since = round(1000 * (datetime.now(UTC) - span).timestamp())
    runs = _runs(registry, filter_string=f"attributes.start_time > {since}", max_results=10_000)
    return float(sum(run.data.metrics.get(SECONDS, 0.0) for run in runs))


def _runs(registry: MlflowRegistry, **which: Any) -> list[Any]:
    with registry.asking("the runs could not be listed") as client:
        experiment = client.get_experiment_by_name(registry.experiment)
        return [] if experiment is None else list(client.search_runs([experiment.experiment_id], **which))
