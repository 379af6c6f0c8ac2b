"""Labels of earlier answers, as the service counts and reports them."""

from __future__ import annotations

import json
import logging

import pytest
from prometheus_client import CollectorRegistry

from pliant.cascade.outcomes import Answered
from serving.cascade.outcomes import Outcomes
from serving.http.api_errors import ApiError


class Lived:
    """Outcomes with remembered answers "positive", and the labels that come for them."""

    def __init__(self, memory: int = 10_000) -> None:
        self.registry, self.count = CollectorRegistry(), 0
        self.outcomes = Outcomes(self.registry, memory)

    def live(self, label: str, version: int = 1, level: str = "small", promised: float | None = 0.9):
        self.count += 1
        classes = ("negative", "positive")
        answered = Answered("reviews", version, "default", level, "positive", 0.8, promised, classes=classes)
        self.outcomes.remember(str(self.count), answered)
        return self.outcomes.take(str(self.count), label)

    def metric(self, name: str, **labels) -> float | None:
        return self.registry.get_sample_value(f"pliant_{name}", {"task": "reviews", "candidate": "default", **labels})


def test_labels_are_counted_by_level_and_by_whether_the_answer_was_right():
    lived = Lived()
    for label, level in (("positive", "small"), ("negative", "small"), ("positive", "large"), ("positive", "large")):
        lived.live(label, level=level)
    assert lived.metric("labels_total", level="small", correct="false") == 1
    assert lived.metric("labels_total", level="large", correct="true") == 2
    assert lived.metric("calibration_error", version="1", level="large") == pytest.approx(0.2)


def test_a_broken_promise_is_logged_once_with_both_figures_and_stays_on_the_gauge(caplog):
    lived = Lived()
    with caplog.at_level(logging.ERROR, "pliant.serving"):
        for number in range(200):
            lived.live("positive" if number % 2 else "negative")
        for _ in range(300):
            lived.live("positive")
    (record,) = caplog.records
    assert "the promise of default for reviews (version 1) is broken" in record.message
    assert "but 90.0% were promised" in record.message
    assert lived.metric("promise_broken", version="1") == 1
    (figures,) = lived.outcomes.to_dict()
    assert figures["broken"]


def test_a_new_version_starts_afresh_also_while_labels_of_the_old_one_come_in():
    lived = Lived()
    for _ in range(50):
        lived.live("negative", version=1)
        lived.live("positive", version=2)
    assert (lived.metric("promise_broken", version="1"), lived.metric("promise_broken", version="2")) == (1, 0)
    assert [(one["version"], one["broken"]) for one in lived.outcomes.to_dict()] == [(1, True), (2, False)]


def test_figures_without_a_label_under_the_promise_are_plain_json():
    lived = Lived()
    taken = lived.live("positive", promised=None)
    assert taken["promise"]["accuracy"] is None and taken["promise"]["promised"] is None
    json.dumps(lived.outcomes.to_dict(), allow_nan=False)


def test_an_answer_that_fell_out_of_memory_is_unknown():
    lived = Lived(memory=2)
    for _ in range(3):
        lived.live("positive")
    with pytest.raises(ApiError, match="id is '1', but must be of a recent answer") as caught:
        lived.outcomes.take("1", "positive")
    assert caught.value.status == 404
