"""What a trial may compare of two answers of the cascade."""

from __future__ import annotations

import pytest

from pliant.serving.cascade.judge import CascadeJudge


def prediction(task: int, **models: int):
    text = {"label": "red", "confidence": 0.9, "versions": {"task": task, "models": models}}
    return {"answers": [text, {"error": {"code": "late"}}]}


@pytest.mark.parametrize(
    ("champion", "challenger", "comparable"),
    [
        (prediction(1, small=1), prediction(1, small=1), True),  # a copy of the release itself
        (prediction(1, small=1), prediction(2, small=2), True),  # both trained anew
        (prediction(1, small=1), prediction(2, large=1), True),  # no model ran for both
        (prediction(1, small=1), prediction(2, small=1), False),  # the same model, calibrated anew
        (prediction(1, small=1), prediction(2, small=1, large=2), False),
        (prediction(1, small=1), {"answers": [{"error": {}}, {"error": {}}]}, True),
    ],
)
def test_confidences_of_one_model_under_two_calibrations_are_not_compared(champion, challenger, comparable):
    assert CascadeJudge().comparable(champion, challenger) is comparable
