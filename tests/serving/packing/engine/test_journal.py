"""Every step of an engine is written down until its process ends, and read again as it was."""

from __future__ import annotations

import atexit

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.request import FOREVER, Chunk, Prompt, StepInput, StepPlan
from pliant.serving.packing.engine.engine_process import read_journal, recorder


@pytest.fixture
def at_exit(monkeypatch):
    registered = []
    monkeypatch.setattr(atexit, "register", registered.append)
    return registered


STEPS = [
    (0.5, StepInput((Prompt(1, 0.25, 4, 8, (1.0, 2.0), tenant="ann"),), (), ()), StepPlan(admitted=(1,))),
    (0.75, StepInput((), (1,), (2,)), StepPlan(prefill_chunks=(Chunk(3, 16),), stalled=(4,))),
]


def test_steps_are_read_as_they_were_written_once_the_process_has_ended(tmp_path, at_exit):
    path = tmp_path / "folder" / "journal.jsonl"
    record = recorder(path)
    for step in STEPS:
        record(*step)
    (close,) = at_exit
    close()
    assert read_journal(path) == STEPS and read_journal(path)[0][1].arrived[0].deadline == FOREVER
    record(*STEPS[0])
    assert read_journal(path) == STEPS, "nothing is written after the end"


def test_a_torn_last_line_is_passed_over_and_any_other_is_an_error(tmp_path, at_exit):
    path = tmp_path / "journal.jsonl"
    record = recorder(path)
    record(*STEPS[0])
    at_exit[0]()
    whole = path.read_text()
    path.write_text(whole + whole[:20])
    assert read_journal(path) == STEPS[:1]
    path.write_text("no entry\n" + whole)
    with pytest.raises(InputError, match="journal line is 'no entry'"):
        read_journal(path)


def test_the_journal_of_a_former_run_is_kept(tmp_path, at_exit):
    path = tmp_path / "journal.jsonl"
    for step in STEPS:
        recorder(path)(*step)
        at_exit[-1]()
    assert read_journal(path) == STEPS[1:] and read_journal(tmp_path / "journal.jsonl.1") == STEPS[:1]


def test_a_file_that_cannot_be_made_is_an_error(tmp_path, at_exit):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="journal is"):
        recorder(tmp_path / "file" / "journal.jsonl")
    assert at_exit == []
