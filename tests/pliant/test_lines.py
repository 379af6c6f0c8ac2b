"""Files of lines that a killed process left with a torn end are read and continued without harm."""

from __future__ import annotations

import logging
import os
import stat

import pytest

from pliant import lines
from pliant.errors import InputError
from pliant.lines import Torn, complete_lines, open_log, open_to_append, write_whole


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
    monkeypatch.setattr(lines, "LOG_BYTES", 4)
    path = tmp_path / "new" / "folder" / "log"
    for text in (b"1234", b"5", b"6"):
        with open_log(path) as file:
            file.write(text)
    assert (path.read_bytes(), path.with_name("log.1").read_bytes()) == (b"6", b"12345")


def test_a_log_is_begun_anew_beyond_16_mebibytes(tmp_path):
    path = tmp_path / "log"
    for size, kept in ((16 * 1024 * 1024, False), (16 * 1024 * 1024 + 1, True)):
        with path.open("wb") as file:
            file.truncate(size)
        open_log(path).close()
        assert path.with_name("log.1").exists() == kept


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
