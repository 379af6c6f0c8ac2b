"""Back-up and restore by the commands of docs/backup.md, word for word, while flows publish and labels come in.

A release is served, clients report labels that break its promise, and the alarm starts a flow. While that trains, and while
a publisher publishes one version after the other, everything is backed up. Then Postgres and all folders go, and come back
from the back-up into a new Postgres and new folders at the same place.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.errors import ArtifactError, PliantError, RegistryError
from pliant.flows.release import open_registry
from pliant.outcomes.files import folder_of, read_labels
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import prefix
from pliant.registry.package import Package
from qa.clients import again_and_again
from qa.prefect_server import ENDED, python, until
from qa.stack.changes import ENVIRONMENT
from qa.stack.commands import follow
from qa.stack.dashboards import Clients
from qa.stack.servers import Postgres, connect, program
from qa.stack.stack import DEADLINE, NO_KEY, OK, Stack, emptied, stack
from qa.targets import say

PAGE = "backup.md"
DATABASES, FILE, STATE = "Databases and artifacts, with Postgres", "Registry in a file", "State and keys, in both cases"
DATABASES_BACK, FILE_BACK = "Databases and artifacts into Postgres", "Registry into a file"
STATE_BACK, RUNS_BACK = "State and keys back", "Runs that were under way"
"""Headings of the page, each with one block of commands."""
SYSTEM = "tokens"
"""Whose endpoint takes labels, and whose flow is the quickest of those that learn from them."""
TEACHERS = "stack"
"""The tenant whose labels flows learn from."""
SERVICE = {"watch_seconds": 1.0, "refresh_seconds": 2.0, "try_challengers": False, "trusted_labels": TEACHERS}
SIZES = {SYSTEM: {"foundation": {"images": 1_000}}}
"""A sixth of the demo's: how good the model is does not matter here, and false labels break any promise."""
ALARMED = 300.0  # seconds within which false labels have broken a promise, and the alarm's flow runs
PUBLISHED = 120.0  # seconds within which a version is published
NEXT = 180.0  # seconds from the back-up's begin to the next run of the schedule, by when all is restored
RAN = 300.0  # seconds after that moment within which that run has ended
EXAMPLES = 8  # that are sent, one after the other
NEAR = 1e-4  # by which probabilities of the same model may differ, as batches do


def backup(context: Context) -> Measured:
    """Back up, destroy, restore, compare. Raises `PliantError`, `Skipped` without Postgres' programs."""
    programs = Path(program("postgres")).resolve().parent
    place = emptied("backup")
    home, copy = place / "home", place / "copy"
    environment = {**os.environ, "BACKUP": str(copy), "STATE": str(home), "KEYS": str(home / "keys.json")}
    environment |= {"ARTIFACTS": str(home / "artifacts")}
    environment |= {"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    trusting = patch.dict(os.environ, {**ENVIRONMENT, "PLIANT_TRUSTED_LABELS": TEACHERS})
    with trusting, context.stage("back-up") as progress:
        # Serve, report labels, and back up while a flow runs and a publisher publishes.
        with ExitStack() as running:
            given = running.enter_context(stack(home, (SYSTEM,), SIZES))
            client, admin = given.key("use"), given.key("admin", "operator")
            plan = given.plans[SYSTEM]
            list(given.scheduled())
            url = running.enter_context(given.endpoint(SYSTEM, **{**plan.service, **SERVICE}))
            progress(1, 6)
            http = running.enter_context(connect(url, client))
            running.enter_context(Clients(http, plan.speech, plan.before.examples, falsely=True).running())
            until(lambda: [r for r in given.prefect.flow_runs() if r.reason and r.state == "RUNNING"], ALARMED)
            publisher = running.enter_context(publishing(open_registry(given.project, SYSTEM), SYSTEM))
            planned = given.schedule(SYSTEM, NEXT)
            before = picture(given, client, admin)
            progress(2, 6)
            first = len(publisher)
            under_way = sum(run.state not in (*ENDED, "SCHEDULED") for run in given.prefect.flow_runs())

            def await_next() -> None:
                """Return when one more version is published: one comes between every two commands."""
                count = len(publisher)
                until(lambda: len(publisher) > count, PUBLISHED)

            saving = follow(PAGE, DATABASES, environment | given.database.libpq, between=await_next)
            saving |= follow(PAGE, STATE, environment | given.database.libpq)
            published = len(publisher) - first
            time.sleep(2.0)  # what a service writes each second
            after = picture(given, client, admin)
        shutil.rmtree(home)  # Postgres has gone with its folder
        progress(3, 6)
        # Bring everything back into a new Postgres and new folders, start the servers, and look.
        restoring, begun = dict[str, float](), time.monotonic()

        def databases(database: Postgres) -> None:
            for heading in (DATABASES_BACK, STATE_BACK):
                restoring.update(follow(PAGE, heading, environment | database.libpq))

        def runs() -> None:
            restoring.update(follow(PAGE, RUNS_BACK, {**os.environ, "PATH": environment["PATH"]}))

        with ExitStack() as running:
            given = running.enter_context(stack(home, (SYSTEM,), SIZES, databases, runs))
            url = running.enter_context(given.endpoint(SYSTEM, **{**plan.service, **SERVICE}))
            up = time.monotonic() - begun
            progress(4, 6)
            lost = differences(before, after, picture(given, client, admin))
            registry = open_registry(given.project, SYSTEM)
            versions = versions_of(registry, SYSTEM)
            broken = broken_of(registry, versions)
            # The client's key opens the endpoint, and another one does not.
            body, keys = plan.speech.body(plan.before.examples[0], DEADLINE), list[str]()
            for key, expected in ((client, OK), (f"{client[:-4]}0000", NO_KEY)):
                with connect(url, key) as http:
                    status = http.post(plan.speech.path, json=body).status_code
                keys += [] if status == expected else [f"a key gets {status}"]
            progress(5, 6)
            ended = list[str]()
            while not ended and time.time() < planned + RAN:
                time.sleep(1.0)
                listed = given.prefect.flow_runs()
                ended = [run.word for run in listed if run.begun >= planned - 1 and run.state in ENDED]
            next_run = ended[0] if ended else f"none of {[f'{run.name} is {run.word}' for run in listed]}"
    wrong, sizes = [*lost, *broken, *keys], {path.name: size_of(path) for path in sorted(copy.iterdir())}
    say(*wrong, *(f"{seconds:6.1f} s  {command[:100]}" for command, seconds in (saving | restoring).items()))
    say(", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items()), f"the next run: {next_run}")
    targets = [
        Target("versions published while the back-up was made", published, ">=", 1),
        Target("versions in the restored registry whose files are missing or altered", len(broken), "<=", 0),
        Target("differences between what was there and what is restored", len(lost), "<=", 0),
        Target("keys that do not open what they did, or open what they did not", len(keys), "<=", 0),
        Target("runs of the restored schedule that ended well", int(next_run == "Completed"), ">=", 1),
    ]
    return targets, {
        "backup_seconds": sum(saving.values()),
        "restore_seconds": sum(restoring.values()),
        "seconds_to_the_first_answer": up,
        "sizes": sizes,
        "versions": {name: len(numbers) for name, numbers in versions.items()},
        "runs_under_way": under_way,
        "next_run": next_run,
        "wrong": wrong,
    }


@contextmanager
def publishing(registry: MlflowRegistry, system: str) -> Iterator[list[str]]:
    """Publish the smallest champion again and again, as fast as it goes; give the names of what was published.

    It begins with the first version published.
    """
    fetched = [(registry.fetch(name)[0], name) for name in sorted(registry.versions(prefix(system)))]
    folder, name = min(fetched, key=lambda each: size_of(each[0]))
    shape = np.zeros((1, 1), np.float32)  # what an MLflow client gives and gets does not matter here
    package, published = Package(name, folder, shape, shape), list[str]()

    def publish_one() -> None:
        with suppress(PliantError):  # where no version comes at all, that is waited for in vain
            publish(registry, package)
            published.append(name)

    with again_and_again(publish_one, 0.0):
        until(lambda: published, PUBLISHED)
        yield published
    for other, _ in fetched:
        registry.discard(other)


def publish(registry: MlflowRegistry, package: Package) -> None:
    """Publish a package once. Raises `PliantError`."""
    with registry.run("publisher") as run:
        registry.publish(run, package)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())


@dataclass(frozen=True, slots=True)
class Picture:
    """What a stack holds. `live`: the release that is served; `answers`: to the same requests, without ids and times.

    `kept`: every version's digest, every release's versions and every ended run's state, by name; `counts`: of labels and
    events; `known`: alarms, and promises that do not hold; `schedules`: of each deployment.
    """

    live: int
    answers: Sequence[Mapping[str, Any]]
    kept: Mapping[str, Any]
    counts: Mapping[str, int]
    known: frozenset[str]
    schedules: Mapping[str, Sequence[str]]


def picture(given: Stack, key: str, admin: str) -> Picture:
    """Look at everything that is there of a system. Raises `PliantError`."""
    registry, plan = open_registry(given.project, SYSTEM), given.plans[SYSTEM]
    shown = json.loads(python("-m", "pliant", "status", SYSTEM, "--json"))[0]
    with connect(given.services[SYSTEM], admin) as http:
        outcomes = http.get(plan.status).raise_for_status().json()["outcomes"]
        alarms = http.get("/v1/outcomes/alarms").raise_for_status().json()["alarms"]
    of = {
        " ".join(str(row[name]) for name in ("task", "version", "operating_point", "candidate") if name in row): row
        for row in outcomes
    }
    kept = {f"release {each['number']}": each["versions"] for each in shown["releases"]}
    kept |= {
        f"{name} {n}": digest for name, each in versions_of(registry, SYSTEM).items() for n, digest in each.items()
    }
    kept |= {f"run {run.id}": run.state for run in given.prefect.flow_runs() if run.state in ENDED}
    counts = {f"labels of {name}": row["labels"] for name, row in of.items()}
    counts["lines of labels"] = len(read_labels(folder_of(given.project.home, SYSTEM)))
    events = given.project.home / "events.jsonl"
    counts["events"] = len(events.read_text().splitlines()) if events.is_file() else 0
    answers = []
    with connect(given.services[SYSTEM], key) as http:
        for example in plan.before.examples[:EXAMPLES]:
            said = http.post(plan.speech.path, json=plan.speech.body(example, DEADLINE)).raise_for_status().json()
            answers.append({name: said[name] for name in ("label", "probabilities", "versions") if name in said})
    known = [f"the promise {name}" for name, row in of.items() if row["broken"]]
    known += [f"the alarm {each['id']}" for each in alarms]
    schedules = {
        row["entrypoint"]: sorted(json.dumps(each["schedule"], sort_keys=True) for each in row["schedules"])
        for row in given.prefect.call("POST", "/deployments/filter", {})
    }
    return Picture(int(shown["live"]["number"]), answers, kept, counts, frozenset(known), schedules)


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


def near(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether answers are the same, but for rounding of probabilities."""
    return len(first) == len(second) and all(
        one | {"probabilities": 0} == other | {"probabilities": 0}
        and one.get("probabilities") == pytest.approx(other.get("probabilities"), abs=NEAR)
        for one, other in zip(first, second, strict=True)
    )
