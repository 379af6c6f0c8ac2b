"""How late forecasts are counted at growing rates; service and load are fakes."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.load_generator import Reply
from benchmarks.packing import lateness
from benchmarks.packing.chats import Question
from benchmarks.packing.lateness import (
    HEADINGS,
    ForecastCounts,
    LatenessConfig,
    LatenessResult,
    LoadResult,
    chats,
    measure,
    parse,
)
from pliant.report import Observation
from serving.packing.engine.metrics import PackingMetrics

WITHIN = ((0.01, 90.0), (0.05, 99.0), (0.1, 100.0))
COUNTS = ForecastCounts(97.0, 2.0, 1.0, 0.5, WITHIN)


def result(*late: float) -> LatenessResult:
    """Return loads of which each answers more than the one before, but for the last, which answers as many as the first."""
    loads = [
        LoadResult(1.0, 10.0, 10.0 + at, ForecastCounts(100.0 - n, n, 0.0, 0.5, WITHIN)) for at, n in enumerate(late)
    ]
    return LatenessResult(10.0, (*loads, LoadResult(2.0, 20.0, 10.0, ForecastCounts(0.0, 50.0, 0.0, 0.5, WITHIN))))


def test_the_target_is_the_share_of_late_ones_where_most_is_answered():
    (target,) = result(0.0, 3.0).targets()
    assert (target.measured, target.met) == (pytest.approx(0.03), False)
    assert result(5.0, 1.0).targets()[0].met


def test_a_row_has_shares_and_waits_in_milliseconds():
    row = dict(zip(HEADINGS, LoadResult(0.5, 12.0, 11.0, COUNTS).row(), strict=True))
    assert (row["late"], row["failed"], row["mean ms"], row["99% within ms"]) == ("2.00%", "1.00%", "5.0", "50")
    nothing = LoadResult(0.5, 12.0, 0.0, ForecastCounts(0.0, 0.0, 0.0, 0.0, ())).row()
    assert nothing[3:] == ("0", "0.00%", "0.00%", "nan", "nan")


def test_what_a_service_counts_is_read_for_one_model():
    registry = CollectorRegistry()
    metrics = PackingMetrics(registry)
    for origin, seconds in (("predicted", 0.004), ("predicted", 0.02), ("late", 0.05)):
        metrics.arrived("tales", origin)
        metrics.forecast("tales", origin, seconds)
    metrics.arrived("songs", "failed")
    counts = parse(generate_latest(registry).decode(), "tales")
    assert (counts.predicted, counts.late, counts.failed) == (2, 1, 0)
    assert counts.seconds == pytest.approx(0.074) and dict(counts.within)[0.005] == 1 and counts.within[-1][1] == 3
    assert counts.since(counts) == ForecastCounts(0, 0, 0, 0, tuple((bound, 0) for bound, _ in counts.within))
    assert parse("", "tales").number == 0


def test_chats_come_at_the_rate_and_have_the_deadline():
    config = LatenessConfig(seconds=20.0, deadline=7.0)
    requests = chats("tales", 50.0, 1, config)
    assert len(requests) == pytest.approx(1000, rel=0.2)
    assert {round(request.deadline - request.arrival, 6) for request in requests} == {7.0}
    assert requests == chats("tales", 50.0, 1, config) != chats("tales", 50.0, 2, config)


def test_every_rate_is_a_share_of_what_many_clients_are_answered(monkeypatch):
    sent, asked, told = [], [], []

    async def replay(url, requests, *_rest):
        sent.append(requests)
        return [Reply(Observation(r, r.arrival + 0.1), 200, 0.0, 0.0) for r in requests]

    async def capacity(url, *_rest):
        return 40.0

    @contextmanager
    def serving(system, **options):
        asked.append((system, options))
        yield "url"

    def counts_of(url, name):
        number = float(sum(map(len, sent)))
        return ForecastCounts(number, 0.0, 0.0, 0.0, ((0.05, number),))

    for name, fake in (("replay", replay), ("capacity", capacity), ("serving", serving), ("counts_of", counts_of)):
        monkeypatch.setattr(lateness, name, fake)
    monkeypatch.setattr(lateness, "warm", lambda *_: None)
    config = LatenessConfig(shares=(0.5, 1.0), seconds=10.0)
    found = measure("tales", [Question("why?", 0)], config, lambda *at: told.append(at))
    assert [load.rate for load in found.loads] == [20.0, 40.0]
    assert [load.forecasts.number for load in found.loads] == [len(requests) for requests in sent]
    assert found.highest.share == 1.0 and found.highest.answered == pytest.approx(len(sent[1]) / 10.1, rel=0.02)
    assert asked == [("packing", {"project": None, "refresh_seconds": 0.0})] and told[-1] == (10, 10)
