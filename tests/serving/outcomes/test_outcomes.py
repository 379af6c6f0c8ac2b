"""Labels of earlier answers, as the service counts and reports them."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from pliant.outcomes.answered import Answered
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.outcomes.labels import MAX_LABELS, RATE, read_outcome, take_all
from pliant.serving.outcomes.outcomes import Outcomes
from tests.fixtures.observed import remember


class Lived:
    """Outcomes with remembered answers "positive", and the labels that come for them."""

    def __init__(self, memory: int = 10_000) -> None:
        self.registry, self.count = CollectorRegistry(), 0
        self.outcomes = Outcomes(self.registry, memory)

    def live(self, label: str, version: int = 1, level: str = "small", promised: float | None = 0.9):
        self.count += 1
        classes = ("negative", "positive")
        answered = Answered("reviews", version, "default", level, "positive", 0.8, promised, classes=classes)
        remember(self.outcomes, str(self.count), answered)
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
    remember(lived.outcomes, id, answered)


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
    with pytest.raises(ApiError, match="at most 100 labels a second can be reported") as caught:
        lived.outcomes.take("a", "positive", client("acme"))
    assert (caught.value.status, caught.value.code) == (429, "rate_limited")
    assert caught.value.retry_after == pytest.approx(0.01)
    with pytest.raises(ApiError, match="recent answer"):  # another tenant has its own rate
        lived.outcomes.take("a", "positive", client("other"))
    now[0] += 1 / RATE
    assert lived.outcomes.take("a", "positive", client("acme"))["repeated"]


def test_an_answer_can_be_labelled_for_a_limited_time():
    now = [100.0]
    lived = Lived()
    lived.outcomes = Outcomes(CollectorRegistry(), clock=lambda: now[0])
    answered_to(lived, "a", "acme")
    now[0] += 29.99 * 86_400
    assert lived.outcomes.take("a", "positive", client("acme"))["correct"] is True
    now[0] += 0.02 * 86_400
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


def test_the_answer_to_a_label_says_what_it_was_for_and_how_the_promise_stands():
    lived = Lived()
    taken = lived.live("negative", version=3, level="large")
    (figures,) = lived.outcomes.to_dict()
    promise = {"promised": 0.9, "accuracy": 0.0, "labels": 1, "evidence": figures["evidence"], "broken": False}
    about = {"id": "1", "task": "reviews", "version": 3, "candidate": "default", "level": "large"}
    assert taken == {**about, "correct": False, "repeated": False, "promise": promise}
    assert lived.outcomes.take("1", "negative") == {**taken, "repeated": True}
    assert lived.metric("labels_total", level="large", correct="false") == 1, "a repeated label counts once"
    with pytest.raises(ApiError) as caught:
        lived.outcomes.take("1", "positive")
    error = caught.value
    assert (error.status, error.code, error.field) == (409, "other_label", "label")
    assert str(error) == "label is 'positive', but must be the one reported before: a label cannot be changed"
    with pytest.raises(InputError, match="must be one of negative, positive"):
        lived.outcomes.take("1", "neutral")


def alarmed(lived: Lived, *tenants: str) -> None:
    """Report wrong labels of these tenants in turn, but a right one of the last first, until the promise breaks."""
    for number, tenant in enumerate(itertools.cycle(reversed(tenants))):
        answered_to(lived, f"{tenant}{number}", tenant)
        lived.outcomes.take(f"{tenant}{number}", "negative" if number else "positive", client(tenant))
        if lived.outcomes.alarms():
            return


def test_an_alarm_holds_the_figures_of_its_moment_and_every_label_with_who_reported_it():
    lived = Lived()
    lived.outcomes = Outcomes(CollectorRegistry(), clock=lambda: 5.5)
    alarmed(lived, "acme", "other")
    (alarm,) = lived.outcomes.alarms()
    (figures,) = lived.outcomes.to_dict()
    assert (alarm["id"], alarm["at"], alarm["taken_back"]) == ("1", 5.5, None)
    assert {name: alarm[name] for name in figures} == figures and figures["broken"]
    labels = alarm["latest_labels"]
    reported = {"tenant": "other", "key": "key of other", "at": 5.5}
    assert labels[0] == {"id": "other0", "label": "positive", "correct": True, **reported}
    wrong = [one["tenant"] for one in labels if not one["correct"]]
    assert alarm["labels_by_tenant"] == {
        "acme": {"correct": 0, "wrong": wrong.count("acme")},
        "other": {"correct": 1, "wrong": wrong.count("other")},
    }
    assert alarm["labels"] == len(labels) == len(wrong) + 1


def test_an_alarm_that_is_taken_back_without_keys_says_so_in_the_log_and_the_answer(caplog):
    lived, now = Lived(), [5.5]
    lived.outcomes = Outcomes(CollectorRegistry(), clock=lambda: now[0])
    alarmed(lived, "acme")
    (alarm,) = lived.outcomes.alarms()
    now[0] = 7.0
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pliant.serving"):
        taken_back = lived.outcomes.take_back("1", Client())
    assert taken_back == {**alarm, "taken_back": {"tenant": "", "key": "", "at": 7.0}}
    assert lived.outcomes.alarms() == [taken_back]
    assert caplog.messages == [
        "alarm 1 is taken back by an administrator without a key: the promise of default for reviews (version 1) is "
        f"broken: of {alarm['labels']} labelled answers {alarm['accuracy']:.1%} are correct, but 90.0% were promised; by "
        "chance this happens in at most 5% of all services"
    ]
    with pytest.raises(ApiError) as caught:
        lived.outcomes.take_back("2", Client())
    assert (caught.value.status, caught.value.code, caught.value.field) == (404, "unknown_id", "id")


def test_a_report_is_read_as_an_id_and_a_class_or_a_number():
    assert read_outcome({"id": "a", "label": "positive"}) == ("a", "positive")
    assert read_outcome({"id": "a", "label": 3}) == ("a", 3.0)
    for value, sentence in (
        (["a", "positive"], "outcome is ['a', 'positive']"),
        ({"label": "positive"}, "id is missing, but must be given"),
        ({"id": "a"}, "label is missing, but must be given"),
        ({"id": "a", "label": None}, "label is None"),
    ):
        with pytest.raises(InputError) as caught:
            read_outcome(value)
        assert str(caught.value).startswith(sentence)


def test_of_a_list_each_label_has_its_result_and_the_status_is_the_first_error_where_all_fail():
    def take(id: str, label: str | float) -> dict:
        if id == "good":
            return {"id": id, "label": label}
        raise ApiError(404 if id == "unknown" else 409, id, "it does not fit", "id")

    def error(id: str | None, code: str, field: str, message: str = "it does not fit") -> dict:
        return {"id": id, "error": {"code": code, "field": field, "message": message}}

    def reports(*ids: str) -> list[dict]:
        return [{"id": id, "label": "a"} for id in ids]

    unknown, other = error("unknown", "unknown", "id"), error("other", "other", "id")
    good = {"id": "good", "label": "a"}
    for ids, status, outcomes in (
        (("good", "good"), 200, [good, good]),
        (("unknown", "good"), 200, [unknown, good]),
        (("unknown", "other"), 404, [unknown, other]),
        (("other", "unknown"), 409, [other, unknown]),
    ):
        refused = len(outcomes) - outcomes.count(good)
        content = {"taken": len(ids) - refused, "refused": refused, "outcomes": outcomes}
        assert asyncio.run(take_all(reports(*ids), take)) == (status, content)
    for value, id in ((7, None), ({"id": 7, "label": "a"}, None), ({"id": "x" * 200}, "x" * 80)):
        status, content = asyncio.run(take_all([value], take))
        assert (status, content["outcomes"][0]["id"]) == (422, id)
        assert content["outcomes"][0]["error"]["code"] == "invalid"


def test_a_list_of_labels_has_one_at_least_and_a_thousand_at_most():
    for count, fits in ((0, False), (1, True), (1000, True), (1001, False)):
        labels = [{"id": "a", "label": "b"}] * count
        if fits:
            assert asyncio.run(take_all(labels, lambda _id, _label: {}))[1]["taken"] == count
            continue
        with pytest.raises(InputError, match=f"outcomes is a list of {count}, but must be a list of 1 to 1000"):
            asyncio.run(take_all(labels, lambda _id, _label: {}))


def test_others_have_their_turn_while_a_long_list_is_taken():
    async def main() -> list[int]:
        taken, turns = [], []

        async def other() -> None:
            while len(taken) < 100:
                turns.append(len(taken))
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await take_all([{"id": "a", "label": "b"}] * 100, lambda id, label: taken.append(id) or {})
        await task
        return turns

    turns = asyncio.run(main())
    assert max(later - sooner for sooner, later in itertools.pairwise(turns)) <= 8
