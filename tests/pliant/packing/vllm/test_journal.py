"""The journal of decisions in vLLM keeps runs apart, survives a full disk and a killed engine, and is decided again."""

from __future__ import annotations

import errno

import pytest

from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.packing.vllm import journal
from pliant.packing.vllm.decisions import Decisions, State
from pliant.packing.vllm.journal import JournalFile, main, read
from tests.fixtures.packing.samples import prompt

RULES, MEMORY = Rules("paged", 64), Memory(16, 4)


def played(path, steps: int = 5) -> JournalFile:
    """Write a run of one request, and return the open file."""
    file = JournalFile(str(path), RULES, MEMORY)
    decisions = Decisions(RULES, MEMORY, file.add)
    decisions.arrive("a", prompt(0, 10, 50))
    for at in range(steps):
        state = State(10 + at, 11 + at)
        decisions.report(decisions.decide(at / 4), ["a"], {"a": 1 if at else 10}, lambda name, state=state: state)
    return file


def test_every_run_is_a_part_of_its_own(tmp_path, capsys):
    path = tmp_path / "journal"
    played(path).close()
    played(path, 3).close()
    first, second = read(path)
    assert (len(first.entries), len(second.entries)) == (5, 3)
    assert (first.rules, first.memory) == (RULES, MEMORY)
    assert main(str(path)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "run 1: policy paged, 16 pages, 1.0 s: 5 decisions, 1 requests, 0 finished, 0 cancelled, 0 too late, 0 preempted, "
        "0 corrected; decided the same again"
    )
    assert len(said) == 2


def test_what_a_killed_engine_left_incomplete_is_passed_over(tmp_path):
    path = tmp_path / "journal"
    played(path).close()
    path.write_text(path.read_text()[:-5])
    assert [len(run.entries) for run in read(path)] == [4]
    played(path).close()
    assert [len(run.entries) for run in read(path)] == [4, 5]


def test_a_full_disk_ends_the_journal_and_not_the_engine(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(journal, "FLUSH", 1)
    file = played(tmp_path / "journal", 2)

    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "no space left")

        def close(self):
            raise OSError(errno.ENOSPC, "no space left")

    file._file = Full()
    decisions = Decisions(RULES, MEMORY, file.add)
    for now in (0.0, 1.0):
        decisions.decide(now)
    file.close()
    assert "the journal ends here" in caplog.text
    assert len(read(tmp_path / "journal")[0].entries) == 2


@pytest.mark.parametrize("text", ["nonsense\n", '{"now": 1}\n', '{"rules": {}, "memory": {"x": 1}}\n', '{"rules": \n'])
def test_what_is_no_journal_is_said(tmp_path, capsys, text):
    path = tmp_path / "journal"
    path.write_text(text)
    assert main(str(path)) == 2
    assert str(path) in capsys.readouterr().err
