"""Back-up and restore by the commands of docs/backup.md, word for word, while flows publish and labels come in.

A release is served, clients report labels that break its promise, and the alarm starts a flow. While that trains, and while
a publisher publishes one version after the other, everything is backed up. Then Postgres and all folders go, and come back
from the back-up into a new Postgres and new folders at the same place.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from rich.console import Console

from pliant.benchmarks.harness import Context, Measured, Skipped
from pliant.benchmarks.places import ROOT
from pliant.benchmarks.results import Target
from pliant.flows import servers, settings
from pliant.flows.release import open_registry
from pliant.progress import Progress
from qa.prefect_server import ENDED
from qa.stack.backup_picture import Picture, broken_of, differences, picture, versions_of
from qa.stack.backup_publisher import Publisher, size_of
from qa.stack.changes import ENVIRONMENT
from qa.stack.dashboards_load import OK, Clients, Endpoint, await_all
from qa.stack.page import Shell, Step, commands
from qa.stack.postgres import OWNER, Postgres
from qa.stack.programs import FOLDERS, program
from qa.stack.stack import Restoration, Sizes, Stack, stack
from qa.stack.whole import NO_KEY, TRAINED, new_key

PAGE = ROOT / "docs" / "backup.md"
DATABASES, FILE, STATE = "Databases and artifacts, with Postgres", "Registry in a file", "State and keys, in both cases"
DATABASES_BACK, FILE_BACK = "Databases and artifacts into Postgres", "Registry into a file"
STATE_BACK, RUNS_BACK = "State and keys back", "Runs that were under way"
"""Headings of the page, each with one block of commands."""
SYSTEM = "tokens"
"""Whose endpoint takes labels, and whose flow is the quickest of those that learn from them."""
TEACHERS = "stack"
"""The tenant whose labels flows learn from."""
SERVICE = {"watch_seconds": 1.0, "refresh_seconds": 2.0, "try_challengers": False, "trusted_labels": TEACHERS}
UNDER_WAY = ("RUNNING", "PENDING", "CANCELLING")
SIZES: Sizes = {SYSTEM: {"foundation": {"images": 1_000}}}
"""A sixth of the demo's: how good the model is does not matter here, and false labels break any promise."""
CLIENTS = 3
ALARMED = 300.0  # seconds within which false labels have broken a promise, and the alarm's flow runs
NEXT = 180.0  # seconds from the back-up's begin to the next run of the schedule, by when all is restored
RAN = 300.0  # seconds after that moment within which that run has ended


@dataclass(frozen=True, slots=True)
class Saved:
    """What was there before and after the back-up, and how it went. `next_run`: seconds since 1970.

    `published`: versions by the publisher meanwhile; `under_way`: flow runs that had begun and not ended.
    """

    client: str
    admin: str
    before: Picture
    after: Picture
    steps: Sequence[Step]
    published: int
    next_run: float
    under_way: int


def backup(context: Context) -> Measured:
    """Back up, destroy, restore, compare. Raises `PliantError`, `Skipped` without Postgres' programs."""
    path, place = _path(), settings.read().home / "bench" / "backup"
    shutil.rmtree(place, ignore_errors=True)
    home, copy = place / "home", place / "copy"
    places = {"BACKUP": str(copy), "STATE": str(home), "KEYS": str(home / "keys.json")}
    places |= {"ARTIFACTS": str(home / "artifacts"), "PATH": path}
    trusting = patch.dict(os.environ, {**ENVIRONMENT, "PLIANT_TRUSTED_LABELS": TEACHERS})
    with trusting, context.stage("back-up") as progress, ExitStack() as running:
        saved = _save(home, places, progress)
        shutil.rmtree(home)  # Postgres has gone with its folder
        progress(3, 6)
        # Bring everything back into a new Postgres and new folders, start the servers, and look.
        steps, begun = list[Step](), time.monotonic()

        def databases(database: Postgres) -> None:
            for heading in (DATABASES_BACK, STATE_BACK):
                steps.extend(follow(heading, {**places, **_libpq(database)}))

        def runs() -> None:
            steps.extend(follow(RUNS_BACK, {"PATH": path}))

        given = running.enter_context(stack(home, home / "keys.json", (SYSTEM,), Restoration(databases, runs), SIZES))
        plan = given.plans[SYSTEM]
        url = running.enter_context(given.endpoint(SYSTEM, **{**plan.service, **SERVICE}))
        up = time.monotonic() - begun
        progress(4, 6)
        lost = differences(saved.before, saved.after, picture(given, SYSTEM, saved.client, saved.admin))
        registry = open_registry(given.project, SYSTEM)
        versions = versions_of(registry, SYSTEM)
        broken = broken_of(registry, versions)
        # The client's key opens the endpoint, and another one does not.
        body, keys = plan.speech.body(plan.before.examples[0], 30.0), list[str]()
        for key, expected in ((saved.client, OK), (f"{saved.client[:-4]}0000", NO_KEY)):
            status, _ = Endpoint(url, key).post(plan.speech.path, body)
            keys += [] if status == expected else [f"a key gets {status}"]
        progress(5, 6)
        next_run = _next_run(given, saved)
    console, wrong = Console(), [*lost, *broken, *keys]
    for sentence in wrong:
        console.print(sentence, markup=False)
    sizes = {path.name: size_of(path) if path.is_dir() else path.stat().st_size for path in sorted(copy.iterdir())}
    for step in (*saved.steps, *steps):
        console.print(f"{step.seconds:6.1f} s  {step.command[:100]}", markup=False, highlight=False)
    console.print(", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items()), markup=False)
    counts = {name: len(numbers) for name, numbers in versions.items()}
    console.print(f"versions restored: {counts}; the next run: {next_run}", markup=False)
    targets = [
        Target("versions published while the back-up was made", saved.published, ">=", 1),
        Target("versions in the restored registry whose files are missing or altered", len(broken), "<=", 0),
        Target("differences between what was there and what is restored", len(lost), "<=", 0),
        Target("keys that do not open what they did, or open what they did not", len(keys), "<=", 0),
        Target("runs of the restored schedule that ended well", int(next_run == "Completed"), ">=", 1),
    ]
    return targets, {
        "backup_seconds": sum(step.seconds for step in saved.steps),
        "restore_seconds": sum(step.seconds for step in steps),
        "seconds_to_the_first_answer": up,
        "sizes": sizes,
        "versions": counts,
        "runs_under_way": saved.under_way,
        "next_run": next_run,
        "wrong": wrong,
    }


def follow(
    heading: str, variables: Mapping[str, str], between: Callable[[], object] = lambda: None, order: int = 1
) -> list[Step]:
    """Run the commands below a heading of the page, and call `between` after each. `order`: -1 for the last one first.

    Raises `PliantError` with what a failed command wrote.
    """
    shell, steps = Shell({**os.environ, **variables}), list[Step]()
    try:
        for command in commands(PAGE.read_text(encoding="utf-8"), heading)[::order]:
            steps.append(shell.run(command))
            between()
    finally:
        shell.stop()
    return steps


def _path() -> str:
    """Return a PATH on which Postgres' programs come first. Raises `Skipped` without them."""
    places = [Path(program("postgres")).resolve().parent, *map(Path, os.environ["PATH"].split(":"))]
    places += [path for folder in FOLDERS for path in sorted(Path("/").glob(folder[1:]), reverse=True)]
    for folder in places:
        if (folder / "pg_dump").exists():
            return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    raise Skipped("pg_dump is not installed here (Debian's package postgresql-client)")


def _save(home: Path, places: Mapping[str, str], progress: Progress) -> Saved:
    """Serve, report labels, and back up while a flow runs and a publisher publishes; everything has ended then."""
    keys = home / "keys.json"
    with ExitStack() as running:
        client, admin = new_key(keys, "use"), new_key(keys, "admin", "operator")
        given = running.enter_context(stack(home, keys, (SYSTEM,), sizes=SIZES))
        given.await_scheduled(SYSTEM, given.schedule(SYSTEM), TRAINED)
        url = running.enter_context(given.endpoint(SYSTEM, **{**given.plans[SYSTEM].service, **SERVICE}))
        progress(1, 6)
        plan = given.plans[SYSTEM]
        clients = Clients(Endpoint(url, client), plan.speech, plan.before.examples, falsely=True)
        running.enter_context(clients.running(CLIENTS))

        def alarmed() -> bool:
            return any(run.reason and run.state == "RUNNING" for run in given.prefect.flow_runs())

        await_all("a run that an alarm started", ALARMED, {SYSTEM: alarmed})

        publisher = Publisher(open_registry(given.project, SYSTEM), SYSTEM)
        running.enter_context(publisher.running())
        next_run = given.schedule(SYSTEM, NEXT)
        before = picture(given, SYSTEM, client, admin)
        progress(2, 6)
        first, under_way = publisher.published, sum(run.state in UNDER_WAY for run in given.prefect.flow_runs())
        own = {**places, **_libpq(given.database)}
        # A version comes between every two commands, however quick they are.
        steps = follow(DATABASES, own, publisher.await_next)
        steps += follow(STATE, own)
        published = publisher.published - first
        time.sleep(2.0)  # what a service writes each second
        after = picture(given, SYSTEM, client, admin)
        return Saved(client, admin, before, after, steps, published, next_run, under_way)


def _libpq(database: Postgres) -> dict[str, str]:
    host, port = servers.HOST, str(database.port)
    return {"PGHOST": host, "PGPORT": port, "PGUSER": OWNER, "PGPASSWORD": database.password}


def _next_run(given: Stack, saved: Saved) -> str:
    """Return how the run ended that the schedule had planned, or what is there instead."""
    while time.time() < saved.next_run + RAN:
        for run in given.prefect.flow_runs():
            if run.begun >= saved.next_run - 1 and run.state in ENDED:
                return run.word
        time.sleep(1.0)
    left = [f"{run.name} is {run.word}" for run in given.prefect.flow_runs() if run.state not in ENDED]
    return ", ".join(left) or "no run"
