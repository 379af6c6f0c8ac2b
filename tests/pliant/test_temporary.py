"""A temporary folder goes with its owner, also with one that was killed; that of a living one stays."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from pliant.temporary import OwnedFolder, abandoned, remove_abandoned
from tests.fixtures.places import ROOT

OWNER = "from pliant.temporary import OwnedFolder; o = OwnedFolder(); print(o.path, flush=True); input()"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_owner(temporary):
    owned = OwnedFolder()
    (owned.path / "file").write_text("text")
    owned.remove()
    owned.remove()
    assert not list(temporary.iterdir())
    forgotten = OwnedFolder().path
    gc.collect()
    assert not forgotten.exists()


def test_the_folder_of_a_killed_process_goes_with_the_next_one_and_that_of_a_living_one_stays(temporary):
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            folder = process.stdout.readline().strip()
            remove_abandoned()
            assert [str(path) for path in temporary.iterdir()] == [folder] and not list(abandoned())
        finally:
            process.send_signal(signal.SIGKILL)
    assert [str(path) for path in abandoned()] == [folder]
    (temporary / "pliant-owned-somebody").mkdir()  # without a lock: being made, or not ours
    mine = OwnedFolder()
    assert {path.name for path in temporary.iterdir()} == {mine.path.name, "pliant-owned-somebody"}


def test_only_its_owner_may_read_the_lock_and_it_is_given_back_with_the_folder(temporary):
    free = os.dup(0)
    os.close(free)
    owned = OwnedFolder()
    assert owned.path.parent == temporary and owned.path.name.startswith("pliant-owned-")
    assert (owned.path / ".lock").stat().st_mode & 0o777 == 0o600
    owned.remove()
    again = os.dup(0)
    os.close(again)
    assert again == free, "no file of it is open any more"


def test_a_folder_that_somebody_removed_is_no_hindrance(temporary, monkeypatch):
    owned = OwnedFolder()
    shutil.rmtree(owned.path)
    owned.remove()
    monkeypatch.setattr("pliant.temporary.abandoned", lambda: iter([temporary / "pliant-owned-gone"]))
    remove_abandoned()
