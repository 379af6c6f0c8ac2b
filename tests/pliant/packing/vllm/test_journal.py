"""In vLLM: the journal keeps runs apart and is decided again; bad settings are refused in one sentence that names them."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.packing.vllm import journal
from pliant.packing.vllm.decisions import Decisions, State
from pliant.packing.vllm.journal import JournalFile, main, read
from pliant.packing.vllm.settings import FILE, Settings
from pliant.packing.vllm.settings import read as read_settings
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


def test_a_file_names_all_of_them(tmp_path):
    values = Settings("edf", 0.5, 0.1, 2.0, False, str(tmp_path), 0.2, 30.0, "journal.jsonl")
    file = tmp_path / "settings.toml"
    file.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in asdict(values).items()))
    assert read_settings({FILE: str(file)}) == values
    assert values.rules(10) == Rules("edf", 10, 0.5, 0.0, 2.0, recalibrate=False, turnover_preemptions=0.1)


def test_variables_go_before_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('policy = "edf"\nwait = 1\nrecalibrate = false')
    settings = read_settings(
        {FILE: str(file), f"{FILE}_POLICY": "paged", f"{FILE}_WAIT": "0.5", f"{FILE}_RECALIBRATE": "TRUE"}
    )
    assert (settings.policy, settings.wait, settings.recalibrate) == ("paged", 0.5, True)
    assert (
        read_settings({FILE: str(file)}).wait == 1.0
        and not read_settings({FILE: str(file), f"{FILE}_RECALIBRATE": "0"}).recalibrate
    )


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("POLICY", "fcfs", "policy is fcfs, but must be one of default"),
        ("POLICI", "paged", "variable is PLIANT_SCHEDULER_POLICI, but must be PLIANT_SCHEDULER_ and one of POLICY"),
        ("SAFETY", "much", "safety is much, but must be a number"),
        ("SAFETY", "nan", "safety is nan, but must be finite"),
        ("TURNOVER_PREEMPTIONS", "-1", "turnover_preemptions is -1.0, but must be at least 0"),
        ("REORDER_PATIENCE", "inf", "reorder_patience is inf, but must be at least 0 and finite"),
        ("RECALIBRATE", "maybe", "recalibrate is maybe, but must be true or false"),
        ("WAIT", "-0.1", "wait is -0.1, but must be at least 0"),
        ("DEADLINE", "inf", "deadline is inf, but must be at least 0 and finite"),
        ("PREDICTOR", "/no/such/folder", "predictor is /no/such/folder, but must be the folder"),
    ],
)
def test_a_bad_variable_is_one_sentence(variable, value, said):
    with pytest.raises(InputError) as error:
        read_settings({f"{FILE}_{variable}": value})
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('polici = "paged"', "setting is polici, but must be one of policy, safety"),
        ("policy = 3", "policy is 3, but must be a text"),
        ('wait = "long"', "wait is 'long', but must be a number"),
        ("wait = true", "wait is True, but must be a number"),
        ("recalibrate = 1", "recalibrate is 1, but must be true or false"),
        (f"deadline = 1{'0' * 400}", "deadline is inf, but must be at least 0"),
        ("policy", "PLIANT_SCHEDULER is "),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, text, said):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_settings({FILE: str(file)})
    assert str(error.value).startswith(said) and "\n" not in str(error.value)
