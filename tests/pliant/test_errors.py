"""Errors, fallbacks, progress, files of lines and temporary folders: what every stage uses."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

import pytest

from pliant import fallbacks, jsonl
from pliant.errors import InputError
from pliant.fallbacks import Collector, Fallback
from pliant.jsonl import Torn, complete_lines, open_log, open_to_append, write_whole
from pliant.progress import share
from pliant.temporary import OwnedFolder, abandoned, remove_abandoned
from tests.fixtures.places import ROOT


def test_a_value_outside_its_limit_is_named_with_field_and_limit_in_every_process():
    error = InputError("gamma", 7, "at most 4")
    assert str(error) == "gamma is 7, but must be at most 4"
    moved = pickle.loads(pickle.dumps(error))
    assert (str(moved), moved.field, moved.value, moved.limit) == (str(error), "gamma", "7", "at most 4")


def test_a_fallback_is_logged_as_a_warning(caplog):
    fallbacks.note("memory", "batches of 64 do not fit: 100%")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", "batches of 64 do not fit: 100%")]


def test_a_collector_takes_each_fallback_once():
    collector = Collector()
    fallbacks.note("memory", "batches of 64 do not fit")
    fallbacks.note("capture", "no graph")
    assert collector.take() == (Fallback("memory", "batches of 64 do not fit"), Fallback("capture", "no graph"))
    assert collector.take() == ()


def test_two_parts_move_one_bar_from_its_start_to_its_end_without_going_back():
    seen = []
    first, second = (share(lambda done, total: seen.append((done, total)), *part) for part in ((0, 80), (80, 100)))
    for part in (first, second):
        for done in range(5):
            part(done, 4)
    assert [total for _, total in seen] == [100] * 10
    assert [done for done, _ in seen] == [0, 20, 40, 60, 80, 80, 85, 90, 95, 100]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"torn", []),
        (b"\n", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\ntorn", ["a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"\xff\nb\n", ["\N{REPLACEMENT CHARACTER}", "b"]),
    ],
)
def test_lines_are_those_with_an_end(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    assert complete_lines(tmp_path / "file", "the journal") == expected


def test_a_file_that_cannot_be_read_is_an_error_of_its_name(tmp_path):
    with pytest.raises(InputError, match=r"the journal is .*file, but must be a file that can be read"):
        complete_lines(tmp_path / "file", "the journal")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"c\n"),
        (b"", b"c\n"),
        (b"a\n", b"a\nc\n"),
        (b"a\nb and more\n", b"a\nb and more\nc\n"),
        (b"to", b"to\nc\n"),
        (b"x", b"x\nc\n"),
        (b"\nto", b"\nto\nc\n"),
    ],
)
def test_a_torn_line_gets_its_end_before_another_is_appended(tmp_path, before, after):
    path = tmp_path / "new" / "folder" / "file"
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
    with open_to_append(path) as file:
        file.write(b"c\n")
    assert path.read_bytes() == after
    if before is None:
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_has_grown_too_large_is_kept_beside_and_another_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "LOG_BYTES", 4)
    path = tmp_path / "new" / "folder" / "log"
    for text in (b"1234", b"5", b"6"):
        with open_log(path) as file:
            file.write(text)
    assert (path.read_bytes(), path.with_name("log.1").read_bytes()) == (b"6", b"12345")


def test_what_was_passed_over_is_counted_and_the_first_reason_kept(tmp_path, caplog):
    torn = Torn(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        torn.report("entries")
        assert caplog.text == ""
        for number, fault in enumerate(("", "first", "second"), start=1):
            with torn.pass_over(number):
                if fault:
                    raise InputError(fault, 0, "another")
        torn.report("entries")
    assert f"passed over in {tmp_path / 'file'}, as they are no entries: 2 (line 2: first is 0" in caplog.text


OWNER = "from pliant.temporary import OwnedFolder; o = OwnedFolder(); print(o.path, flush=True); input()"


@pytest.fixture
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


def test_a_folder_that_somebody_removed_is_no_hindrance(temporary, monkeypatch):
    owned = OwnedFolder()
    shutil.rmtree(owned.path)
    owned.remove()
    monkeypatch.setattr("pliant.temporary.abandoned", lambda: iter([temporary / "pliant-owned-gone"]))
    remove_abandoned()


def test_a_file_is_replaced_whole_and_private_or_stays_as_it_was(tmp_path, monkeypatch):
    path, synced, sync = tmp_path / "a.jsonl", [], os.fsync
    path.write_bytes(b"former")
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(stat.S_ISDIR(os.fstat(file).st_mode)) or sync(file))
    write_whole(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert synced == [False, True], "the content first, and the folder after it took its place"

    def full(_file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"newer")
    assert path.read_bytes() == b"new" and [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]
