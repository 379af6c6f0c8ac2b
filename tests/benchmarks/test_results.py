"""Bars and the file that they are written to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.results import Bar, exit_status, write

HOLDS, SHORT = Bar("rate", 2.0, ">=", 1.0, "x"), Bar("delay", 2.0, "<=", 1.0, "ms")


@pytest.mark.parametrize(
    ("measured", "sense", "holds"),
    [(1.0, ">=", True), (0.999, ">=", False), (1.0, "<=", True), (1.001, "<=", False)],
)
def test_a_bar_holds_up_to_its_limit_and_not_beyond(measured, sense, holds):
    bar = Bar("any", measured, sense, 1.0)
    assert bar.holds is holds
    assert bar.verdict == ("holds" if holds else "falls short")


@pytest.mark.parametrize("sense", [">=", "<="])
def test_what_could_not_be_measured_falls_short(sense):
    assert Bar("any", float("nan"), sense, 1.0).verdict == "falls short"


def test_the_exit_status_tells_of_a_single_bar_that_falls_short():
    assert exit_status([HOLDS]) == 0
    assert exit_status([HOLDS, SHORT, HOLDS]) == 1


def test_the_file_holds_bars_with_verdicts_machine_commit_and_details(tmp_path):
    path = write(tmp_path / "made" / "here", "tokens", [HOLDS, SHORT], {"seeds": 3})
    content = json.loads(path.read_text())
    assert path == tmp_path / "made" / "here" / "tokens.json"
    assert [bar["verdict"] for bar in content["bars"]] == ["holds", "falls short"]
    assert content["bars"][0] | {"name": "rate", "measured": 2.0, "limit": 1.0} == content["bars"][0]
    assert content["seeds"] == 3
    assert content["machine"]["python"].startswith("3.")
    assert content["commit"]


def test_the_file_is_json_whatever_was_measured(tmp_path):
    """JSON has no NaN, no infinity and no numbers of numpy's."""
    details = {"a": float("nan"), "b": np.float32("inf"), "c": np.int64(4), "d": (np.float64(0.5),), 5: {"e": [1]}}
    text = write(tmp_path, "tokens", [Bar("lost", float("nan"), "<=", 1.0)], details).read_text()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    content = json.loads(text, parse_constant=refuse)
    assert (content["a"], content["b"], content["c"], content["d"]) == (None, None, 4, [0.5])
    assert content["5"] == {"e": [1]}
    assert content["bars"][0]["measured"] is None
