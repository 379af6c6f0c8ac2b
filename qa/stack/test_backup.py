"""Back-up and restore of a registry in a file by the commands of docs/backup.md.

`make stack-test ONLY=backup` does the same with Postgres and all servers.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import TOKENS_TASK, experiment
from pliant.registry.package import Package
from qa.stack.backup import FILE, FILE_BACK, PAGE, STATE, STATE_BACK, broken_of, publish, versions_of
from qa.stack.commands import follow
from tests.fixtures.tokens.samples import tiny_task


class Laptop:
    """A registry in a file with one version, state with a SQLite file that is being written, and keys."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.state, artifact = folder / "mlruns", folder / ".pliant", folder / "artifact"
        codec.save(tiny_task("letters", ("a", "b"), "0" * 64), artifact)
        shape = np.zeros((1, 1), np.float32)
        self.package = Package(f"{TOKENS_TASK}letters", artifact, shape, shape)
        outcomes, metrics = self.state / "outcomes" / "tokens", self.state / "bentoml-3000" / "prometheus"
        for place in (self.runs, outcomes, metrics, folder / "copy"):
            place.mkdir(parents=True)
        (metrics / "counter_7.db").write_bytes(b"no database of SQLite")
        (self.state / "keys.json").write_text("{}")
        (self.state / "events.jsonl").write_text("one\n")
        self.base = sqlite3.connect(outcomes / "outcomes.db", isolation_level=None)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.execute("CREATE TABLE labels (id INTEGER)")
        self.places = {**os.environ, "BACKUP": str(folder / "copy"), "STATE": str(self.state), "RUNS": str(self.runs)}
        self.places |= {"KEYS": str(self.state / "keys.json")}
        self.places |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def registry(self, again: str = "") -> MlflowRegistry:
        """Return the registry; with another `again` MLflow opens the file anew."""
        address = f"sqlite:///{self.runs}/{again}mlflow.db"
        return MlflowRegistry(address, experiment("tokens"), self.runs / "artifacts")

    def versions(self) -> dict[int, str]:
        return versions_of(self.registry(), "tokens")[self.package.name]

    def work(self) -> None:
        """Publish, and write into the state, as happens while a back-up is made."""
        publish(self.registry(), self.package)
        self.base.execute("INSERT INTO labels VALUES (1)")
        with (self.state / "events.jsonl").open("a") as events:
            events.write("another\n")


@pytest.mark.parametrize("in_order", [True, False], ids=["as the page says", "artifacts before the database"])
def test_every_version_has_its_files_when_versions_come_between_all_commands_in_this_order_alone(tmp_path, in_order):
    laptop = Laptop(tmp_path)
    laptop.work()
    before = laptop.versions()
    follow(PAGE, FILE, laptop.places, between=laptop.work, order=1 if in_order else -1)
    follow(PAGE, STATE, laptop.places, between=laptop.work)
    after = laptop.versions()
    laptop.base.close()
    for lost in (laptop.runs, laptop.state):
        shutil.rmtree(lost)
    for heading in (FILE_BACK, STATE_BACK):
        follow(PAGE, heading, laptop.places)
    registry = laptop.registry("./")
    restored = versions_of(registry, "tokens")
    assert before.items() < restored[laptop.package.name].items() < after.items()
    broken = broken_of(registry, restored)
    assert bool(broken) is not in_order, broken
    assert (laptop.state / "keys.json").read_text() == "{}"
    assert (laptop.state / "events.jsonl").read_text().startswith("one\nanother\n")
    with closing(sqlite3.connect(laptop.state / "outcomes" / "tokens" / "outcomes.db")) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert base.execute("SELECT COUNT(*) FROM labels").fetchone()[0] >= 2
