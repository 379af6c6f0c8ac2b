"""Forecasts within a time limit: predicted together in a process of their own, or else those of all outputs."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field, replace

from pliant.packing.scheduling.forecast import Forecast
from pliant.serving.packing.engine import forecaster as module
from pliant.serving.packing.engine.forecaster import (
    MAX_TEXTS,
    READ_CHARACTERS,
    Forecaster,
    ForecastLimits,
)
from tests.fixtures.packing.fakes import FakePredictor

USUAL = (1.0,) * 8
SAID = Forecast((2.0,) * 8, 5)


@dataclass
class Counter:
    forecasts: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    def forecast(self, task: str, origin: str, seconds: float) -> None:
        self.forecasts.append((task, origin))
        self.seconds.append(seconds)

    def predictor_died(self, task: str) -> None:
        self.deaths.append(task)


def say(texts):
    return [SAID for _ in texts]


def forecasting(predict, test, limit: float = 5.0, run_limit: float = 60.0, counter: Counter | None = None):
    """Return what `test` returns of a started forecaster and its fake worker."""

    async def run():
        worker = FakePredictor(predict)
        forecaster = Forecaster("tales", worker, USUAL, ForecastLimits(limit, run_limit), counter or Counter())
        await forecaster.start()
        try:
            return await test(forecaster, worker)
        finally:
            await forecaster.stop()

    return asyncio.run(run())


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_text_is_predicted_by_its_end():
    seen = []

    def predict(texts):
        seen.extend(texts)
        return say(texts)

    (told,) = forecasting(predict, lambda one, _: one.forecast(["a" * 10 + "b" * READ_CHARACTERS]))
    assert told == SAID and told.origin == "predicted"
    assert seen == ["b" * READ_CHARACTERS]


def test_what_gathers_while_the_predictor_works_is_predicted_together():
    batches, entered, go = [], threading.Event(), threading.Event()

    def predict(texts):
        entered.set()
        go.wait(60)
        batches.append(len(texts))
        return say(texts)

    async def crowd(forecaster, _):
        first = asyncio.create_task(forecaster.forecast(["one"]))
        await until(entered.is_set)
        rest = [asyncio.create_task(forecaster.forecast([str(one)])) for one in range(MAX_TEXTS + 3)]
        await asyncio.sleep(0.05)
        go.set()
        return await asyncio.gather(first, *rest)

    told = forecasting(predict, crowd, limit=60.0)
    assert {one.origin for (one,) in told} == {"predicted"} and batches == [1, MAX_TEXTS, 3]


def test_a_late_prediction_is_replaced_and_nobody_waits_for_it():
    go, done, counter = threading.Event(), [], Counter()

    def predict(texts):
        go.wait(60)
        done.append(texts)
        return say(texts)

    async def hurry(forecaster, _):
        told = await forecaster.forecast(["a", "b"])
        before = list(done)
        go.set()
        return told, before, forecaster.recent()

    told, before, recent = forecasting(predict, hurry, limit=0.05, counter=counter)
    assert [(one.tokens, one.bucket, one.origin) for one in told] == [(USUAL, 0, "late")] * 2
    assert not before and recent == {"late": 2}
    assert counter.forecasts == [("tales", "late")] * 2 and min(counter.seconds) >= 0.05


def test_the_time_in_which_the_event_loop_was_held_up_makes_no_forecast_late():
    entered, done = threading.Event(), threading.Event()

    def predict(texts):
        entered.set()
        done.wait(60)
        return say(texts)

    async def stalled(forecaster, _):
        first = asyncio.create_task(forecaster.forecast(["a"]))
        await until(entered.is_set)
        second = asyncio.create_task(forecaster.forecast(["b"]))
        await asyncio.sleep(0.01)
        done.set()
        time.sleep(0.25)  # the loop stands still for longer than the limit, before it can send the second text
        return [*await first, *await second]

    told = forecasting(predict, stalled, limit=0.2)
    assert [one.origin for one in told] == ["predicted"] * 2


def test_a_process_that_dies_idle_is_restarted_and_meanwhile_nobody_waits(caplog, monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    counter = Counter()

    async def dying(forecaster, worker):
        worker.trouble = "no memory"
        worker.die()
        down = forecaster.alive
        (meanwhile,) = await forecaster.forecast(["a"])
        await until(lambda: "the predictor of tales could not be started: no memory" in caplog.messages)
        worker.trouble = ""
        await until(lambda: forecaster.alive)
        return down, meanwhile.origin, await forecaster.forecast(["b"]), worker.starts

    down, meanwhile, (told,), starts = forecasting(say, dying, limit=60.0, counter=counter)
    assert (down, meanwhile, told.origin, starts) == (False, "failed", "predicted", 2)
    assert counter.deaths == ["tales"] and caplog.messages[-1] == "the predictor of tales is up again"
    assert caplog.messages[0] == (
        "the predictor of tales is lost (it ended): it is restarted, and every output counts as of usual length meanwhile"
    )


def test_a_known_length_is_its_own_forecast_and_a_least_one_lifts_what_lies_below():
    known = Forecast.of_length(7)
    assert (known.tokens, known.bucket, known.origin) == ((7.0,) * 8, 7, "given")
    predicted = Forecast((1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0), 16, "predicted")
    assert predicted.at_least(0) == predicted
    assert predicted.at_least(20) == Forecast((20.0,) * 5 + (32.0, 64.0, 128.0), 20, "predicted")
    assert replace(predicted, bucket=0).at_least(20).bucket == 0, "not predicted"
