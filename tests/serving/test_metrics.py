"""What tenants had of the devices, as a service counts it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from serving import metrics
from serving.metrics import Metrics
from tests.fixtures import tenants
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
