"""What MLflow's pages say of versions and releases."""

from __future__ import annotations

from pathlib import Path

from registry.descriptions import ROWS, of_release, of_version, table
from registry.package import Package

GATE = {
    "passed": True,
    "reason": "it earns 12.0",
    "challenger": {"accuracy": 0.91, "reports": [{"utility": 12.0}, {"utility": 13.5}], "passed": True},
    "champion": {"accuracy": 0.9, "reports": [{"utility": 11.0}]},
}


def test_a_version_says_its_data_its_metrics_and_what_it_descends_from():
    tags = {"pliant.data": "sha256:1", "pliant.git_commit": "abc"}
    text = of_version(Package("n", Path("f"), {}, {}, metrics={"loss": 0.123456, "rows": 3}, tags=tags), 4)
    assert text == (
        "Descends from version 4, the champion.\nData: `sha256:1`.\nCommit: `abc`.\n\n"
        "| metric | value |\n| --- | --- |\n| loss | 0.1235 |\n| rows | 3 |"
    )
    assert of_version(Package("n", Path("f"), {}, {}), None) == "The first champion is still to come."


def test_a_release_has_the_gates_figures_of_both_sides():
    text = of_release("it earns 12.0", GATE, 3)
    assert text.startswith("The gate: it earns 12.0.\nMade on top of release 3.\n\n| measure | challenger | champion |")
    assert "| accuracy | 0.91 | 0.9 |" in text and "| reports.1.utility | 12 |  |" in text
    assert "passed" not in text


def test_a_release_of_several_tasks_names_each_in_front():
    text = of_release("", {"a": GATE, "b": GATE | {"champion": None}}, None)
    assert text.startswith("The first release.\n\n| of | measure | challenger | champion |")
    assert "| a | accuracy | 0.91 | 0.9 |" in text and "| b | accuracy | 0.91 |  |" in text


def test_a_long_table_is_cut_and_says_so_and_an_empty_one_is_none():
    lines = table(("a",), [[str(number)] for number in range(ROWS + 2)])
    assert len(lines) == 1 + 2 + ROWS + 2 and lines[-1] == "and 2 more in the run"
    assert table(("a",), []) == []
