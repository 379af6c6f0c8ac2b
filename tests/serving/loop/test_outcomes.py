"""Labels of earlier answers, as the service counts and reports them."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from pliant.outcomes.tracker import Answered
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.loop.outcome_routes import read_outcome, take_all
from pliant.serving.loop.outcomes import MAX_LABELS, RATE, Outcomes, chosen_id
from tests.fixtures.observed import remember


def client(tenant: str, *roles: str) -> Client:
    return Client(tenant, 1.0, frozenset(roles or ("use",)), f"key of {tenant}")


ACME, ROOT = client("acme"), client("root", "admin")


class World:
    """Outcomes with answers "positive", the labels that come for them, and a clock."""

    def __init__(self, memory: int = 10_000, wanted: float = 0.0, floor: float = 0.3) -> None:
        self.registry, self.now, self.count = CollectorRegistry(), 100.0, 0
        self.outcomes = Outcomes(self.registry, memory, clock=lambda: self.now, wanted=wanted, floor=floor)

    def answer(self, id: str, tenant: str = "", **fields) -> None:
        usual = {"task": "reviews", "version": 1, "candidate": "default", "level": "small", "promised": 0.9, **fields}
        classes = ("negative", "positive")
        remember(self.outcomes, id, Answered(label="positive", confidence=0.8, classes=classes, tenant=tenant, **usual))

    def live(self, label: str, tenant: str = "", **fields) -> dict:
        """Answer, and take the label of the answer."""
        self.count += 1
        self.answer(str(self.count), tenant, **fields)
        return self.outcomes.take(str(self.count), label, client(tenant) if tenant else Client())

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"pliant_{name}", {"task": "reviews", **labels})

    def broken(self, version: str = "1") -> float | None:
        return self.metric("promise_broken", candidate="default", version=version)


def refused(work) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        work()
    return caught.value.status, caught.value.code


def test_the_answer_to_a_label_says_what_it_was_for_and_how_the_promise_stands_and_it_counts_once():
    world = World()
    taken = world.live("negative", version=3, level="large")
    (figures,) = world.outcomes.to_dict()
    promise = {"promised": 0.9, "accuracy": 0.0, "labels": 1, "evidence": figures["evidence"], "broken": False}
    about = {"id": "1", "task": "reviews", "version": 3, "candidate": "default", "level": "large"}
    assert taken == {**about, "correct": False, "repeated": False, "counted": True, "promise": promise}
    assert world.outcomes.take("1", "negative") == {**taken, "repeated": True, "counted": False}
    assert refused(lambda: world.outcomes.take("1", "positive")) == (409, "other_label")
    with pytest.raises(InputError, match="must be one of negative, positive"):
        world.outcomes.take("1", "neutral")
    by = {"candidate": "default", "level": "large"}
    assert world.metric("labels_total", correct="false", **by) == 1
    assert world.metric("calibration_error", version="3", **by) == pytest.approx(0.8)


def test_figures_without_a_promise_are_plain_json():
    world = World()
    taken = world.live("positive", promised=None)
    assert taken["promise"]["accuracy"] is None and taken["promise"]["promised"] is None
    json.dumps(world.outcomes.to_dict(), allow_nan=False)


def test_a_broken_promise_is_logged_once_and_a_new_version_starts_afresh(caplog):
    world = World()
    for _ in range(50):
        world.live("negative", version=1)
        world.live("positive", version=2)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert re.search("promise of default for reviews .version 1. is broken.*but 90.0% were promised", record.message)
    assert (world.broken("1"), world.broken("2")) == (1, 0)
    assert [(each["version"], each["broken"]) for each in world.outcomes.to_dict()] == [(1, True), (2, False)]


def test_only_who_got_an_answer_or_an_administrator_may_report_its_label_while_it_is_remembered():
    world, unknown = World(memory=2), (404, "unknown_id")
    for id in "abc":
        world.answer(id, "acme")
    assert refused(lambda: world.outcomes.take("a", "negative", ACME)) == unknown, "it fell out of memory"
    for other in (client("other"), client("", "use"), client("other", "use", "monitor")):
        assert refused(lambda other=other: world.outcomes.take("b", "negative", other)) == unknown
    assert world.outcomes.take("b", "negative", ACME)["correct"] is False
    world.now += 29.99 * 86_400
    assert world.outcomes.take("c", "positive", ROOT)["correct"] is True
    world.now += 0.02 * 86_400
    assert refused(lambda: world.outcomes.take("c", "positive", ROOT)) == unknown, "it is too old"


def test_wanted_answers_are_listed_to_who_got_them_and_to_administrators_and_count_alone_from_then_on():
    world = World(wanted=200.0)
    for id in ("a", chosen_id(ACME, "b"), "c"):
        world.answer(id, "acme")
    world.answer("d", "other")
    assert world.outcomes.take("c", "negative", ACME)["counted"], "nobody was asked for labels yet"
    listed = world.outcomes.wanted(10, ACME)
    assert [each["id"] for each in listed] == ["a", "b"] and listed == world.outcomes.wanted(1000, ACME)
    about = {"task": "reviews", "version": 1, "candidate": "default", "level": "small", "label": "positive"}
    assert listed[0] == {"id": "a", **about, "confidence": 0.8, "at": 100.0, "inclusion": 1.0}
    assert world.outcomes.wanted(1, client("third")) == []
    assert [each["id"] for each in world.outcomes.wanted(10, ROOT)] == ["a", chosen_id(ACME, "b"), "d"]
    world.answer("e", "acme")
    unasked = world.outcomes.take("e", "negative", ACME)
    assert not unasked["counted"] and world.outcomes.take("b", "positive", ACME)["counted"]
    assert [each["id"] for each in world.outcomes.wanted(10, ACME)] == ["a", "e"], "whatever was said of it before"
    again = world.outcomes.take("e", "negative", ACME)
    assert again["counted"] and again["repeated"] and again["promise"]["labels"] == 3
    assert not world.outcomes.take("e", "negative", ACME)["counted"], "once"
    assert refused(lambda: world.outcomes.take("b", "negative", ACME)) == (409, "other_label")
    (figures,) = world.outcomes.to_dict()
    assert (figures["labels"], figures["unasked"]) == (3, 1)


def test_labels_come_at_a_limited_rate_for_each_tenant():
    world = World()
    world.answer("a", "acme")
    for _ in range(MAX_LABELS):
        world.outcomes.take("a", "positive", ACME)
    assert refused(lambda: world.outcomes.take("a", "positive", ACME)) == (429, "rate_limited")
    assert refused(lambda: world.outcomes.take("a", "positive", client("other")))[0] == 404, "it has its own rate"
    world.now += 1 / RATE
    assert world.outcomes.take("a", "positive", ACME)["repeated"]


def test_an_alarm_holds_its_figures_and_labels_by_tenant_and_an_administrator_takes_it_back(caplog):
    world = World(floor=1.0)
    world.live("positive", "other")
    for tenant in itertools.cycle(("acme", "other")):
        world.live("negative", tenant)
        if world.outcomes.alarms():
            break
    (alarm,), (figures,) = world.outcomes.alarms(), world.outcomes.to_dict()
    assert {name: alarm[name] for name in figures} == figures and figures["broken"] and world.broken() == 1
    assert (alarm["id"], alarm["at"], alarm["taken_back"]) == ("1", 100.0, None)
    labels = alarm["latest_labels"]
    assert labels[0] == {
        "id": "1",
        "label": "positive",
        "correct": True,
        "tenant": "other",
        "key": "key of other",
        "at": 100,
    }
    wrong = [each["tenant"] for each in labels if not each["correct"]]
    assert alarm["labels_by_tenant"] == {
        "other": {"correct": 1, "wrong": wrong.count("other")},
        "acme": {"correct": 0, "wrong": wrong.count("acme")},
    }
    world.now = 107.0
    for _ in range(2):
        taken_back = world.outcomes.take_back("1", ROOT)
        assert taken_back == {**alarm, "taken_back": {"tenant": "root", "key": "key of root", "at": 107.0}}
    assert world.outcomes.alarms() == [taken_back] and world.outcomes.to_dict() == [] and world.broken() == 0
    assert [world.metric("alarms_total", event=event) for event in ("raised", "taken_back")] == [1, 1]
    assert sum("alarm 1 is taken back by key key of root of root" in message for message in caplog.messages) == 1
    assert refused(lambda: world.outcomes.take_back("77", ROOT)) == (404, "unknown_id")


def test_a_slice_below_its_floor_is_named_while_the_promise_is_kept(caplog):
    world = World()
    for number in range(800):
        world.live("positive" if number % 20 else "negative")
    (figures,) = world.outcomes.to_dict()
    assert [each["name"] for each in figures["slices"]] == ["the class negative"]
    assert not figures["broken"] and world.broken() == 1 and len(world.outcomes.alarms()) == 1
    assert re.search(
        r"kept on the whole only: .* of the class negative 0\.0%, where at least 60\.0% should be", caplog.text
    )


@pytest.mark.parametrize(
    ("value", "read", "field"),
    [
        ({"id": "a", "label": "positive"}, ("a", "positive", ""), None),
        ({"id": "a", "label": 3, "slice": "phones"}, ("a", 3.0, "phones"), None),
        ({"id": "a", "label": 3, "slice": "two\nlines"}, None, "slice"),
        (["a", "positive"], None, "outcome"),
        ({"label": "positive"}, None, "id"),
        ({"id": "a"}, None, "label"),
        ({"id": "a", "label": None}, None, "label"),
    ],
)
def test_a_report_is_read_as_an_id_and_a_class_or_a_number(value, read, field):
    if field is None:
        assert read_outcome(value) == read
        return
    with pytest.raises(InputError) as caught:
        read_outcome(value)
    assert caught.value.field == field


def take(id: str, label: str | float, declared: str) -> dict:
    if id == "good":
        return {"id": id, "label": label}
    raise ApiError(404 if id == "unknown" else 409, id, "it does not fit", "id")


@pytest.mark.parametrize(
    ("ids", "status"),
    [(("good", "good"), 200), (("unknown", "good"), 200), (("unknown", "other"), 404), (("other", "unknown"), 409)],
)
def test_of_a_list_each_label_has_its_result_and_the_status_is_the_first_error_where_all_fail(ids, status):
    given, content = asyncio.run(take_all([{"id": id, "label": "a"} for id in ids], take))
    assert (given, content["taken"], content["refused"]) == (status, ids.count("good"), 2 - ids.count("good"))
    shown = [entry["label"] if "label" in entry else entry["error"]["code"] for entry in content["outcomes"]]
    assert shown == ["a" if id == "good" else id for id in ids]
    for value, id in ((7, None), ({"id": 7, "label": "a"}, None), ({"id": "x" * 200}, "x" * 80)):
        given, content = asyncio.run(take_all([value], take))
        assert (given, content["outcomes"][0]["id"], content["outcomes"][0]["error"]["code"]) == (422, id, "invalid")


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (1000, True), (1001, False)])
async def test_a_list_of_labels_has_one_at_least_and_a_thousand_at_most_and_lets_others_have_their_turn(count, fits):
    turns, taking = 0, asyncio.ensure_future(take_all([{"id": "good", "label": "b"}] * count, take))
    while not taking.done():
        turns += 1
        await asyncio.sleep(0)
    if fits:
        assert (await taking)[1]["taken"] == count and turns >= count / 8
    else:
        with pytest.raises(InputError, match="outcomes"):
            await taking
