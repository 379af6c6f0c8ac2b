"""Labels of earlier answers, as the service counts and reports them."""

from __future__ import annotations

import json
import logging

import pytest
from prometheus_client import CollectorRegistry

from pliant.cascade.answered import Answered
from serving.cascade.outcomes import MAX_LABELS, MEMORY_SECONDS, RATE, Outcomes
from serving.client import Client
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


def client(tenant: str, *roles: str) -> Client:
    return Client(tenant, 1.0, frozenset(roles or ("use",)), f"key of {tenant}")


def answered_to(lived: Lived, id: str, tenant: str) -> None:
    classes = ("negative", "positive")
    answered = Answered("reviews", 1, "default", "small", "positive", 0.8, 0.9, classes=classes, tenant=tenant)
    lived.outcomes.remember(id, answered)


def test_only_the_tenant_that_got_an_answer_or_an_administrator_may_report_its_label():
    lived = Lived()
    for id in ("a", "b"):
        answered_to(lived, id, "acme")
    for other in (client("other"), client("", "use"), client("other", "use", "monitor")):
        with pytest.raises(ApiError, match="must be of a recent answer to you") as caught:
            lived.outcomes.take("a", "negative", other)
        assert (caught.value.status, caught.value.code) == (404, "unknown_id")
    assert lived.outcomes.to_dict() == []
    assert lived.outcomes.take("a", "negative", client("acme"))["correct"] is False
    assert lived.outcomes.take("b", "positive", client("other", "use", "admin"))["correct"] is True


def test_labels_come_at_a_limited_rate_for_each_tenant():
    now = [100.0]
    lived = Lived()
    lived.outcomes = Outcomes(CollectorRegistry(), clock=lambda: now[0])
    answered_to(lived, "a", "acme")
    for _ in range(MAX_LABELS):
        lived.outcomes.take("a", "positive", client("acme"))
    with pytest.raises(ApiError, match="labels a second") as caught:
        lived.outcomes.take("a", "positive", client("acme"))
    assert (caught.value.status, caught.value.code) == (429, "rate_limited")
    with pytest.raises(ApiError, match="recent answer"):  # another tenant has its own rate
        lived.outcomes.take("a", "positive", client("other"))
    now[0] += 1 / RATE
    assert lived.outcomes.take("a", "positive", client("acme"))["repeated"]


def test_an_answer_can_be_labelled_for_a_limited_time():
    now = [100.0]
    lived = Lived()
    lived.outcomes = Outcomes(CollectorRegistry(), clock=lambda: now[0])
    answered_to(lived, "a", "acme")
    now[0] += MEMORY_SECONDS + 1
    with pytest.raises(ApiError, match="recent answer"):
        lived.outcomes.take("a", "positive", client("acme"))


def test_an_alarm_says_which_tenant_led_to_it_and_an_administrator_takes_it_back(caplog):
    lived = Lived()
    for number in range(20):
        answered_to(lived, f"a{number}", "acme")
        lived.outcomes.take(f"a{number}", "negative", client("acme"))
    (alarm,) = lived.outcomes.alarms()
    count = len(alarm["latest_labels"])
    assert alarm["labels_by_tenant"] == {"acme": {"correct": 0, "wrong": count}}
    assert alarm["latest_labels"][0]["key"] == "key of acme" and alarm["taken_back"] is None
    assert lived.metric("promise_broken", version="1") == 1
    with caplog.at_level(logging.WARNING, "pliant.serving"):
        for _ in range(2):
            taken_back = lived.outcomes.take_back(alarm["id"], client("root", "admin"))
    assert taken_back["taken_back"]["tenant"] == "root"
    (record,) = [record for record in caplog.records if "taken back" in record.message]
    assert "alarm 1 is taken back by key key of root of root" in record.message
    assert lived.metric("promise_broken", version="1") == 0 and lived.outcomes.to_dict() == []
    counts = {
        event: lived.registry.get_sample_value("pliant_alarms_total", {"task": "reviews", "event": event})
        for event in ("raised", "taken_back")
    }
    assert counts == {"raised": 1, "taken_back": 1}
    json.dumps(lived.outcomes.alarms(), allow_nan=False)
    with pytest.raises(ApiError, match="must be that of an alarm"):
        lived.outcomes.take_back("77", client("root", "admin"))
