"""What a system says of its models, and what all systems read from parameters alike."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.serving.http.oip.models import Parameters, best_classes, one_version
from pliant.serving.http.oip.tensors import numbers
from tests.fixtures.http.oip import CLASSIFIER, MODEL

CLASSES = ("red", "green", "blue")


def test_a_models_metadata_list_the_inputs_that_it_needs_and_all_outputs():
    assert CLASSIFIER.to_dict() == {
        "name": "colours",
        "versions": ["7"],
        "platform": "test",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 3], "parameters": {"classes": list(CLASSES)}}],
    }
    assert MODEL.to_dict()["inputs"] == []  # all of them are optional
    assert replace(CLASSIFIER, version=None).to_dict()["versions"] == []
    assert (CLASSIFIER.classes, MODEL.classes) == (CLASSES, ())


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, None),
        ({"deadline": None, "timeout": None}, None),
        ({"deadline": 1.5, "timeout": 7}, 1.5),
        ({"timeout": 2_500_000}, 2.5),
        ({"timeout": 60_000_000}, 60.0),
    ],
)
def test_a_deadline_is_in_seconds_and_a_timeout_in_microseconds(fields, seconds):
    assert Parameters.read(fields).seconds(60.0) == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("deadline", value) for value in (0, -1, 61, math.nan, math.inf, "1", True, [1], 10**400)),
        *(("timeout", value) for value in (0, -1, 60_000_001, 1.5, math.nan, "1", True, 10**400)),
    ],
)
def test_a_deadline_or_timeout_outside_its_limits_is_refused(name, value):
    with pytest.raises(InputError) as raised:
        Parameters.read({name: value}, "parameters").seconds(60.0)
    assert raised.value.field == f"parameters.{name}"


def test_an_answer_has_a_version_if_all_its_parts_have_the_same():
    assert one_version([3, 3]) == "3"
    assert one_version([3, 4]) is one_version([None]) is one_version([]) is one_version([3, None]) is None


def test_the_best_classes_come_with_score_and_number_best_first():
    scores = numbers("scores", "FP32", [[0.25, 0.5, 0.25], [1.0, 0.0, 2.0]])
    expected = ["0.500000:1:green", "0.250000:0:red", "2.000000:2:blue", "1.000000:0:red"]
    assert best_classes(scores, CLASSES, 2) == (expected, (2, 2))
    assert best_classes(scores, CLASSES, 99)[1] == (2, 3)
    assert best_classes(scores, (), 1) == (["0.500000:1", "2.000000:2"], (2, 1))
