"""Settings come from a file and from variables; every bad one is refused in one sentence that names it."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.policy import Rules
from pliant.packing.vllm.settings import FILE, Settings, read


def test_a_file_names_all_of_them(tmp_path):
    values = Settings("edf", 0.5, 0.1, 2.0, False, str(tmp_path), 0.2, 30.0, "journal.jsonl")
    file = tmp_path / "settings.toml"
    file.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in asdict(values).items()))
    assert read({FILE: str(file)}) == values
    assert values.rules(10) == Rules("edf", 10, 0.5, 0.0, 2.0, recalibrate=False, turnover_preemptions=0.1)


def test_variables_go_before_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('policy = "edf"\nwait = 1\nrecalibrate = false')
    settings = read({FILE: str(file), f"{FILE}_POLICY": "paged", f"{FILE}_WAIT": "0.5", f"{FILE}_RECALIBRATE": "TRUE"})
    assert (settings.policy, settings.wait, settings.recalibrate) == ("paged", 0.5, True)
    assert read({FILE: str(file)}).wait == 1.0 and not read({FILE: str(file), f"{FILE}_RECALIBRATE": "0"}).recalibrate


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
        read({f"{FILE}_{variable}": value})
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
        read({FILE: str(file)})
    assert str(error.value).startswith(said) and "\n" not in str(error.value)
