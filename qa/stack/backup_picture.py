"""What a stack holds that a back-up must bring back: seen before the back-up, after it, and once it is restored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.errors import ArtifactError, RegistryError
from pliant.flows.release import open_registry
from pliant.outcomes.files import folder_of, read_labels
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import prefix
from qa.prefect_server import ENDED, python
from qa.stack.dashboards_load import DEADLINE, Endpoint
from qa.stack.stack import Stack

EXAMPLES = 8  # that are sent, one after the other
NEAR = 1e-4  # by which probabilities of the same model may differ, as batches do


@dataclass(frozen=True, slots=True)
class Picture:
    """What is there. `live`: the release that is served; `answers`: to the same requests, without ids and times.

    `kept`: every version's digest, every release's versions and every ended run's state, by name; `counts`: of labels and
    events; `known`: alarms, and promises that do not hold; `schedules`: of each deployment.
    """

    live: int
    answers: Sequence[Mapping[str, Any]]
    kept: Mapping[str, Any]
    counts: Mapping[str, int]
    known: frozenset[str]
    schedules: Mapping[str, Sequence[str]]


def picture(given: Stack, system: str, key: str, admin: str) -> Picture:
    """Look at everything that is there of a system. Raises `PliantError`."""
    endpoint, registry = Endpoint(given.services[system], key), open_registry(given.project, system)
    shown, speech = json.loads(python("-m", "pliant.cli", "status", system, "--json"))[0], given.plans[system].speech
    outcomes = endpoint.get(given.plans[system].status, admin)["outcomes"]
    alarms = endpoint.get("/v1/outcomes/alarms", admin)["alarms"]
    kept = {f"release {each['number']}": each["versions"] for each in shown["releases"]}
    kept |= {
        f"{name} {n}": digest for name, each in versions_of(registry, system).items() for n, digest in each.items()
    }
    kept |= {f"run {run.id}": run.state for run in given.prefect.flow_runs() if run.state in ENDED}
    counts = {f"labels of {_candidate(each)}": each["labels"] for each in outcomes}
    counts["lines of labels"] = len(read_labels(folder_of(given.project.home, system)))
    events = given.project.home / "events.jsonl"
    counts["events"] = len(events.read_text().splitlines()) if events.is_file() else 0
    answers = []
    for example in given.plans[system].before.examples[:EXAMPLES]:
        status, content = endpoint.post(speech.path, speech.body(example, DEADLINE))
        said = {name: content[name] for name in ("label", "probabilities", "versions") if name in content}
        answers.append(said if status == 200 else {"status": status, "content": content})
    return Picture(
        live=int(shown["live"]["number"]),
        answers=answers,
        kept=kept,
        counts=counts,
        known=frozenset(
            [f"the promise {_candidate(each)}" for each in outcomes if each["broken"]]
            + [f"the alarm {each['id']}" for each in alarms]
        ),
        schedules={
            row["entrypoint"]: sorted(json.dumps(each["schedule"], sort_keys=True) for each in row["schedules"])
            for row in given.prefect.call("POST", "/deployments/filter", {})
        },
    )


def versions_of(registry: MlflowRegistry, system: str) -> dict[str, dict[int, str]]:
    """Return model -> number -> digest of all versions of a system that have an artifact."""
    versions: dict[str, dict[int, str]] = {}
    for name in registry.names(prefix(system)):
        for number in registry.numbers(name):
            published = registry.version(name, number)
            if published is not None and published.digest:
                versions.setdefault(name, {})[number] = published.digest
    return versions


def broken_of(registry: MlflowRegistry, versions: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Return the versions whose artifacts are missing or are not what their digests say, each with the reason."""
    broken = []
    for name, numbers in versions.items():
        for number, digest in numbers.items():
            try:
                folder, _ = registry.fetch(name, number)
                codec.kind(folder)  # verifies every file
                if codec.digest(folder) != digest:
                    broken.append(f"{name} version {number} has another digest")
                registry.discard(folder)
            except (ArtifactError, RegistryError) as error:
                broken.append(f"{name} version {number}: {error}")
    return broken


def differences(before: Picture, after: Picture, restored: Picture) -> list[str]:
    """Return what is missing of `before`, and what is restored that was never there by `after`."""
    wrong = [f"{name} is lost" for name in before.kept if restored.kept.get(name) != before.kept[name]]
    wrong += [
        f"{name} is not what it was"
        for name, value in restored.kept.items()
        if value != after.kept.get(name) and not name.startswith("run ")
    ]
    for name in {*before.counts, *restored.counts}:
        low, value, high = (each.counts.get(name, 0) for each in (before, restored, after))
        wrong += [] if low <= value <= high else [f"{name}: {value}, not from {low} to {high}"]
    wrong += [f"{each} is forgotten" for each in before.known - restored.known]
    if restored.schedules != before.schedules:
        wrong.append(f"schedules: {restored.schedules}, were {before.schedules}")
    same = next((each for each in (before, after) if each.live == restored.live), None)
    if same is None:
        wrong.append(f"release {restored.live} is served, was {before.live}, later {after.live}")
    elif not near(same.answers, restored.answers):
        wrong.append(f"the same release answers otherwise: {restored.answers}, was {same.answers}"[:600])
    return wrong


def near(first: Any, second: Any) -> bool:
    """Return whether two values of JSON are the same, but for rounding of numbers."""
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) <= NEAR
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(near(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(near(*pair) for pair in zip(first, second, strict=True))
    return bool(first == second)


def _candidate(figures: Mapping[str, Any]) -> str:
    """Return the name of what figures in a service's status are of."""
    names = ("task", "version", "operating_point", "candidate")
    return " ".join(str(figures[name]) for name in names if name in figures)
