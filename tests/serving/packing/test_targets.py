"""Targets of requests: kept ones are answered, and what cannot be kept is refused at once with the time to come again."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.fixtures.packing.in_process import error_of, serving


@pytest.fixture
def service(registry):
    with serving(registry) as service:
        yield service


@pytest.fixture
def busy(service):
    """A service whose engine makes no step, with more waiting than it has places for."""
    service.worker.held = True
    replies = [service.wait(service.endpoint.open(request(service), service.endpoint.now)) for _ in range(300)]
    yield service
    for reply in replies:
        reply.cancel()
    service.worker.held = False


def request(service):
    from tests.serving.packing.test_endpoint import PLAIN

    return replace(PLAIN, max_tokens=100)


def test_an_answer_says_when_its_tokens_came_and_whether_its_targets_were_kept(service):
    (choice,) = service.complete(slo_ttft_ms=50_000, slo_tpot_ms=10_000).json()["choices"]
    facts = choice["pliant"]
    assert 0 < facts["tpot_seconds"] < facts["ttft_seconds"] < 50 and facts["on_time"]
    assert service.sample("pliant_targets_total", task="tales", kept="true") == 1
    service.complete()
    assert service.sample("pliant_targets_total", task="tales", kept="true") == 1, "it had none"


def test_what_cannot_be_kept_is_refused_at_once_with_the_time_to_come_again(busy):
    before, began = len(busy.worker.sent), time.perf_counter()
    response = busy.complete(slo_ttft_ms=1)
    assert time.perf_counter() - began < 1.0
    error = error_of(response)
    assert (response.status_code, error["code"]) == (503, "late")
    assert "first token within 0.001 s" in error["message"] and int(response.headers["retry-after"]) >= 1
    assert len(busy.worker.sent) == before, "the engine never hears of it"
    assert busy.sample("pliant_outcomes_total", task="tales", outcome="dropped_refused") == 1
    pending = busy.status()["pending"]
    assert pending == 300


def test_deadline_and_targets_leave_time_for_the_way_back_and_are_what_the_door_goes_by(service, monkeypatch):
    front = service.endpoint.front_door
    assert front.usual_deadline == 10.0
    monkeypatch.setattr(front, "way_back", lambda _now: 2.0)
    before = service.endpoint.now
    assert service.complete(deadline=50, slo_ttft_ms=30_000).status_code == 200
    (prompt,) = [arguments[0].prompt for verb, arguments in service.worker.sent if verb == "submit"]
    assert before - 2.0 <= prompt.arrival <= service.endpoint.now - 2.0
    assert (prompt.deadline - prompt.arrival, prompt.ttft) == (pytest.approx(50.0), 30.0)
    assert front.usual_deadline == 10.0, "an output takes seconds by itself: no deadline counts for more"
    for _ in range(10):
        service.complete(deadline=50, slo_ttft_ms=100)
    assert front.usual_deadline < 10.0
