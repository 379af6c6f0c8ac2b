"""Back-up and restore of a registry in a file by the commands of docs/backup.md.

`make stack-test ONLY=backup` does the same with Postgres and all servers.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import TOKENS_TASK, experiment
from pliant.registry.package import Package
from qa.stack import backup as page
from qa.stack.backup import follow
from qa.stack.backup_picture import broken_of, versions_of
from qa.stack.backup_publisher import publish
from tests.fixtures.tokens.samples import tiny_task


class Laptop:
    """A registry in a file with one version, state with a SQLite file that is being written, and keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs, self.state, artifact = folder / "mlruns", folder / ".pliant", folder / "artifact"
        codec.save(tiny_task("letters", ("a", "b"), "0" * 64), artifact)
        self.runs.mkdir()
        shape = np.zeros((1, 1), np.float32)
        self.package = Package(f"{TOKENS_TASK}letters", artifact, shape, shape)
        (self.state / "outcomes" / "tokens").mkdir(parents=True)
        metrics = self.state / "bentoml-3000" / "prometheus"
        metrics.mkdir(parents=True)
        (metrics / "counter_7.db").write_bytes(b"no database of SQLite")
        (self.state / "keys.json").write_text("{}")
        (self.state / "events.jsonl").write_text("one\n")
        self.base = sqlite3.connect(self.state / "outcomes" / "tokens" / "outcomes.db", isolation_level=None)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.execute("CREATE TABLE labels (id INTEGER)")
        self.base.execute("INSERT INTO labels VALUES (1)")
        self.places = {"BACKUP": str(folder / "copy"), "STATE": str(self.state), "RUNS": str(self.runs)}
        self.places |= {"KEYS": str(self.state / "keys.json")}
        self.places |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def registry(self, again: str = "") -> MlflowRegistry:
        """Return the registry; with another `again` MLflow opens the file anew."""
        address = f"sqlite:///{self.runs}/{again}mlflow.db"
        return MlflowRegistry(address, experiment("tokens"), self.runs / "artifacts")

    def work(self) -> None:
        """Publish, and write into the state, as happens while a back-up is made."""
        publish(self.registry(), self.package)
        self.base.execute("INSERT INTO labels VALUES (2)")
        with (self.state / "events.jsonl").open("a") as events:
            events.write("another\n")

    def lose_everything(self) -> None:
        self.base.close()
        shutil.rmtree(self.runs)
        shutil.rmtree(self.state)


@pytest.mark.parametrize("in_order", [True, False], ids=["as the page says", "artifacts before the database"])
def test_every_version_has_its_files_when_versions_come_between_all_commands_in_this_order_alone(tmp_path, in_order):
    laptop = Laptop(tmp_path)
    publish(laptop.registry(), laptop.package)
    before = versions_of(laptop.registry(), "tokens")[laptop.package.name]
    (laptop.folder / "copy").mkdir()
    follow(page.FILE, laptop.places, laptop.work, order=1 if in_order else -1)
    follow(page.STATE, laptop.places, laptop.work)
    after = versions_of(laptop.registry(), "tokens")[laptop.package.name]
    laptop.lose_everything()
    for heading in (page.FILE_BACK, page.STATE_BACK):
        follow(heading, laptop.places)
    registry = laptop.registry("./")
    restored = versions_of(registry, "tokens")
    assert before.items() < restored[laptop.package.name].items() < after.items()
    broken = broken_of(registry, restored)
    assert bool(broken) is not in_order, broken
    assert (laptop.state / "keys.json").read_text() == "{}"
    assert (laptop.state / "events.jsonl").read_text().startswith("one\nanother\n")
    restored_base = sqlite3.connect(laptop.state / "outcomes" / "tokens" / "outcomes.db")
    assert restored_base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert restored_base.execute("SELECT COUNT(*) FROM labels").fetchone()[0] >= 2
    restored_base.close()
