"""Targets and the file that they are written to."""

from __future__ import annotations

import json

import numpy as np

from pliant.benchmarks.results import Target, read, write

HOLDS, SHORT = Target("rate", 2.0, ">=", 1.0, "x"), Target("delay", 2.0, "<=", 1.0, "ms")


def test_the_file_is_json_whatever_was_measured(tmp_path):
    """JSON has no NaN, no infinity and no numbers of numpy's."""
    details = {"a": float("nan"), "b": np.float32("inf"), "c": np.int64(4), "d": (np.float64(0.5),), 5: {"e": [1]}}
    text = write(tmp_path, "tokens", [Target("lost", float("nan"), "<=", 1.0)], details).read_text()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    content = json.loads(text, parse_constant=refuse)
    assert (content["a"], content["b"], content["c"], content["d"]) == (None, None, 4, [0.5])
    assert content["5"] == {"e": [1]}
    assert content["targets"][0]["measured"] is None


def test_rows_are_written_as_columns_and_read_as_rows(tmp_path):
    rows = [{"policy": "s3", "mean": 1.23456}, {"policy": "default", "mean": 2.0}]
    path = write(tmp_path, "packing", [HOLDS], {"rows": rows, "mixed": [{"a": 1}, {"b": 2}], "one": [{"a": 1}]})
    assert '"columns":["policy","mean"]' in path.read_text()
    content = read(path)
    assert content["rows"] == [{"policy": "s3", "mean": 1.235}, {"policy": "default", "mean": 2.0}]
    assert content["mixed"] == [{"a": 1}, {"b": 2}] and content["one"] == [{"a": 1}]
