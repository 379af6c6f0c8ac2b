"""What a service counts: requests and how they ended, what the devices did, and what tenants had of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from pliant.protocol import (
    Answer,
    Arrived,
    Cancelled,
    Drop,
    Failed,
    Finished,
    JournalEntry,
    Launch,
    Request,
    Restarted,
    Result,
    Woke,
)
from pliant.serving import metrics
from pliant.serving.metrics import Metrics
from tests.fixtures import tenants
from tests.fixtures.observed import observed
from tests.fixtures.tokens import loads as tokens


def counted(journal) -> tuple[Metrics, CollectorRegistry]:
    registry = CollectorRegistry()
    counts = Metrics("gamma", registry=registry)
    for entry in journal:
        counts.observe(entry)
    return counts, registry


def test_device_seconds_and_answers_are_counted_by_tenant():
    load = [replace(r, tenant=("ann", "ben", "")[i % 3]) for i, r in enumerate(tokens.bursty(3, 0.2))]
    journal, books = tokens.run(load, tokens.World(3, failing=0.2))
    counts, registry = counted(journal)
    value = registry.get_sample_value
    for name in ("ann", "ben"):
        expected = tenants.fared(journal, (name,)).seconds
        assert value("pliant_tenant_seconds_total", {"tenant": name}) == pytest.approx(expected)
        fates = [fate for id, fate in books.fates.items() if load[id].tenant == name]
        answers = sum(hasattr(fate, "launch") for fate in fates)
        assert value("pliant_tenant_outcomes_total", {"tenant": name, "outcome": "answered"}) == answers
        late = sum(not hasattr(fate, "launch") and fate.reason == "late" for fate in fates)
        assert value("pliant_tenant_outcomes_total", {"tenant": name, "outcome": "dropped_late"}) == late
    assert value("pliant_tenant_seconds_total", {"tenant": ""}) is None
    assert not counts._owners and not counts._launched


def test_the_number_of_tenants_with_labels_is_bounded(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_TENANTS", 2)
    load = [replace(tokens.ask(i, i * 0.1), tenant=f"tenant {i}") for i in range(5)]
    _, registry = counted(tokens.run(load)[0])
    names = ("tenant 0", "tenant 1", "tenant 2", "others")
    value = [
        registry.get_sample_value("pliant_tenant_outcomes_total", {"tenant": n, "outcome": "answered"}) for n in names
    ]
    assert value == [1, 1, None, 3]


def ask(id: int, tenant: str = "", task: str = "digits") -> Arrived:
    return Arrived(Request(id, 0.0, 1.0, task, tenant=tenant))


def observe(*steps, setting_name=str):
    registry = CollectorRegistry()
    counts = Metrics("gamma", ("task_version", "variant"), registry)
    for number, (event, *actions) in enumerate(steps):
        counts.observe(JournalEntry(number / 10, event, tuple(actions)), setting_name)
    return counts, registry.get_sample_value


def test_requests_launches_and_failures_are_counted_as_they_happen():
    _, value = observe(
        (ask(0), Launch(0, 0, (0,), -5)),
        (ask(1, task="letters"),),
        (ask(2),),
        (Finished(0, 0.03, (Result(0),)), Answer(0, 0), Launch(1, 0, (1, 2), 3)),
        (Failed(1, "no such payload", False), Launch(2, 0, (1, 2), 3)),
        (Failed(2, "it hung", True), Launch(3, 0, (), kind="restart")),
        (Cancelled(2),),
        (Finished(3, 9.0, ()), Launch(4, 0, (1,), -5)),
        (Failed(4, "it died", True),),
        (Woke(),),
        (Restarted("a bug"), Drop(1, "failed")),
        setting_name=lambda gamma: f"gamma {gamma}",
    )
    assert value("pliant_arrivals_total", {"task": "digits"}) == 2
    assert value("pliant_arrivals_total", {"task": "letters"}) == 1
    assert value("pliant_launches_total", {"gamma": "gamma -5"}) == 2
    assert value("pliant_launches_total", {"gamma": "gamma 3"}) == 2
    assert value("pliant_launches_total", {"gamma": "gamma 0"}) is None  # a restart is no batch
    assert (value("pliant_batch_size_count"), value("pliant_batch_size_sum")) == (4, 6)
    assert (value("pliant_run_seconds_count"), value("pliant_run_seconds_sum")) == (1, 0.03)
    assert value("pliant_worker_failures_total") == 2
    assert value("pliant_model_errors_total") == 1
    assert value("pliant_cancelled_total") == 1
    assert value("pliant_scheduler_restarts_total") == 1


def test_answers_are_counted_by_how_they_ended_and_by_what_gave_them():
    counts, value = observe()
    origin = {"task_version": 7, "more": "is not counted by"}
    counts.answered(observed(task="digits", outcome="on_time", origin=origin, utility=3.0))
    counts.answered(observed(task="digits", outcome="late", measured={"queue_seconds": 0.5, "request_seconds": 2.0}))
    counts.dropped("digits", "full", 0.5)
    counts.dropped("digits", "late", 0.25)
    for outcome in ("on_time", "late", "dropped_full"):
        assert value("pliant_outcomes_total", {"task": "digits", "outcome": outcome}) == 1
    assert (value("pliant_queue_seconds_count"), value("pliant_queue_seconds_sum")) == (2, 0.75)
    assert value("pliant_answers_total", {"task": "digits", "task_version": "7", "variant": ""}) == 1
    assert value("pliant_request_seconds_sum") == 2
    worth = {each: value(f"pliant_utility_{each}_total") for each in ("offered", "earned")}
    assert worth == {"offered": 4.75, "earned": 3}
