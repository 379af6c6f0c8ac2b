"""What a service wrote is read as it is, checked line by line, and only what tells of a length is learnt from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pliant.flows.packing.learn import drift, read, usable_outputs
from pliant.outcomes.files import observed_path
from pliant.packing.scheduling.forecast import QUANTILES

LINE = {
    "prompt": "Say it.",
    "prompt_tokens": 5,
    "tokens": 12,
    "censored": False,
    "finish": "end",
    "limit": 90,
    "temperature": 0.7,
    "forecast": [2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0],
    "bucket": 20,
    "prediction": "predicted",
    "generator": "g",
    "time": 1.5,
}


def write(path: Path, *lines: dict, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps({**LINE, **line}) for line in lines) + end)
    return path


def outputs(folder: Path, *lines: dict):
    return read(write(folder / "m.jsonl", *lines), 100)


def test_the_latest_outputs_are_read_across_both_files_the_oldest_first(tmp_path):
    path = observed_path(tmp_path, "tales")
    write(path.with_suffix(".1.jsonl"), *({"tokens": n} for n in (1, 2, 3)))
    write(path, {"tokens": 4}, {"tokens": 5})
    assert [output.tokens for output in read(path, 100)] == [1, 2, 3, 4, 5]
    assert [output.tokens for output in read(path, 3)] == [3, 4, 5]


def test_a_last_line_that_a_killed_process_left_is_passed_over(tmp_path):
    path = write(tmp_path / "m.jsonl", {}, {})
    path.write_text(path.read_text() + '{"prompt": "half a li')
    assert len(read(path, 10)) == 2
    write(path, {}, {"tokens": 3}, end="")  # whole, but nobody knows
    assert len(read(path, 10)) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": 0}, "tokens"),
        ({"tokens": "12"}, "tokens"),
        ({"tokens": True}, "tokens"),
        ({"finish": "cancelled"}, "finish"),
        ({"forecast": [1.0]}, "forecast"),
        ({"forecast": [float("nan")] * len(QUANTILES)}, "forecast"),
        ({"prompt": None}, "prompt"),
        ({"generator": 3}, "generator"),
    ],
)
def test_a_line_that_the_service_did_not_write_is_passed_over_and_named(tmp_path, changes, words, caplog):
    path = write(tmp_path / "m.jsonl", {}, changes, {}, changes)
    assert len(read(path, 10)) == 2
    (message,) = caplog.messages
    assert re.search(rf"they are no observed outputs: 2 \(line 2: .*line 2, {words} is", message)


def test_outputs_that_others_cut_short_or_another_generator_made_tell_of_no_length(tmp_path):
    whole, cut = {"finish": "length", "limit": 95}, {"finish": "length", "limit": 20}
    seen = outputs(tmp_path, {}, {"finish": "string"}, whole, cut, {"generator": "other"})
    assert usable_outputs(seen, "g", context=100) == (seen[0], seen[2])


def test_drift_tells_how_often_forecasts_held_and_how_far_they_were_off(tmp_path):
    seen = outputs(tmp_path, {"tokens": 1}, {"tokens": 10}, {"tokens": 35}, {"tokens": 61}, {"prediction": "late"})
    figures = drift(seen)
    assert (figures["outputs"], figures["predicted"]) == (5, 4)
    shares = [figures[f"coverage.{level:g}"] for level in QUANTILES]
    assert shares == [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.75, 0.75]
    assert figures["over"] == pytest.approx((29 + 20) / 4)
    assert figures["under"] == pytest.approx((5 + 31) / 4)
