"""Forecasts within a time limit: predicted together in a thread, or else those of all outputs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from serving.packing.engine.forecaster import MAX_TEXTS, READ_CHARACTERS, Forecaster

USUAL = (1.0,) * 8
SAID = (2.0,) * 8, 5


def forecasting(predict, test, limit: float = 5.0):
    async def run():
        forecaster = Forecaster(lambda: predict, USUAL, limit)
        await forecaster.start()
        try:
            return await test(forecaster)
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
        return [SAID for _ in texts]

    (told,) = forecasting(predict, lambda one: one.forecast(["a" * 10 + "b" * READ_CHARACTERS]))
    assert (told.tokens, told.bucket, told.origin) == (*SAID, "predicted")
    assert seen == ["b" * READ_CHARACTERS]


def test_what_gathers_while_the_predictor_works_is_predicted_together():
    batches, entered, go = [], threading.Event(), threading.Event()

    def predict(texts):
        entered.set()
        go.wait(60)
        batches.append(len(texts))
        return [SAID for _ in texts]

    async def crowd(forecaster):
        first = asyncio.create_task(forecaster.forecast(["one"]))
        await until(entered.is_set)
        rest = [asyncio.create_task(forecaster.forecast([str(one)])) for one in range(MAX_TEXTS + 3)]
        await asyncio.sleep(0.05)
        go.set()
        return await asyncio.gather(first, *rest)

    told = forecasting(predict, crowd, limit=60.0)
    assert {one.origin for (one,) in told} == {"predicted"} and batches == [1, MAX_TEXTS, 3]


def test_a_late_prediction_is_replaced_and_nobody_waits_for_it():
    go, done = threading.Event(), []

    def predict(texts):
        go.wait(60)
        done.append(texts)
        return [SAID for _ in texts]

    async def hurry(forecaster):
        told = await forecaster.forecast(["a", "b"])
        before = list(done)
        go.set()
        return told, before

    told, before = forecasting(predict, hurry, limit=0.05)
    assert [(one.tokens, one.bucket, one.origin) for one in told] == [(USUAL, 0, "late")] * 2
    assert not before


def test_what_has_left_the_line_is_not_predicted():
    seen, go = [], threading.Event()

    def predict(texts):
        go.wait(60)
        seen.append(list(texts))
        return [SAID for _ in texts]

    async def leaving(forecaster):
        await asyncio.gather(forecaster.forecast(["first"]), forecaster.forecast(["with it"]))
        await forecaster.forecast(["too late"])
        go.set()
        await until(lambda: seen)
        return await forecaster.forecast(["after"])

    (told,) = forecasting(predict, leaving, limit=0.5)
    assert told.origin == "predicted" and seen == [["first", "with it"], ["after"]]


def test_a_predictor_that_failed_is_used_again_by_the_next_request():
    calls = []

    def predict(texts):
        calls.append(texts)
        if len(calls) == 1:
            raise ValueError("a bug")
        return [SAID for _ in texts]

    async def twice(forecaster):
        return [*await forecaster.forecast(["a"]), *await forecaster.forecast(["b"])]

    assert [one.origin for one in forecasting(predict, twice)] == ["failed", "predicted"]


def test_the_predictor_is_loaded_and_used_in_one_thread_that_ends_with_it():
    threads = []

    def load():
        threads.append(threading.current_thread())
        return predict

    def predict(texts):
        threads.append(threading.current_thread())
        return [SAID for _ in texts]

    async def run():
        forecaster = Forecaster(load, USUAL, 60.0)
        unloaded = await forecaster.forecast(["early"])
        await forecaster.start()
        told = [await forecaster.forecast([text]) for text in "abc"]
        await forecaster.stop()
        return [*unloaded, *(one for (one,) in told)]

    assert [one.origin for one in asyncio.run(run())] == ["failed"] + ["predicted"] * 3
    (thread,) = set(threads)
    assert len(threads) == 4 and thread is not threading.current_thread()
    thread.join(30)
    assert not thread.is_alive()


def test_a_predictor_that_hangs_does_not_hold_up_the_end():
    go, entered, left = threading.Event(), threading.Event(), []

    def predict(texts):
        entered.set()
        left.append(go.wait(60))
        return [SAID for _ in texts]

    async def run():
        forecaster = Forecaster(lambda: predict, USUAL, 0.0)
        await forecaster.start()
        told = await forecaster.forecast(["a"])
        await until(entered.is_set)
        await forecaster.stop()
        still = list(left)
        await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        go.set()
        return told, still, tasks

    (told,), still, tasks = asyncio.run(run())
    assert (told.origin, still, tasks) == ("late", [], 1)


def test_a_predictor_that_answers_for_too_few_texts_has_failed_and_the_log_says_so(caplog):
    told = forecasting(lambda texts: [SAID], lambda one: one.forecast(["a", "b"]), limit=60.0)
    assert [(one.tokens, one.origin) for one in told] == [(SAID[0], "predicted"), (USUAL, "failed")]
    assert caplog.messages == ["lengths could not be predicted"] and "Traceback" in caplog.text


@pytest.mark.parametrize(("error", "origin"), [(None, "predicted"), (ValueError("a bug"), "failed")])
def test_who_has_gone_spoils_no_forecast_of_those_predicted_together(caplog, error, origin):
    """The first of two texts in one batch is late when the predictions come, or the error."""
    calls, go = [], threading.Event()

    def predict(texts):
        calls.append(list(texts))
        go.wait(60)
        if error:
            raise error
        return [SAID for _ in texts]

    async def pair(forecaster):
        async def within(limit, text):
            forecaster._limit = limit
            return await forecaster.forecast([text])

        hasty = asyncio.create_task(within(0.01, "hasty"))
        patient = asyncio.create_task(within(60.0, "patient"))
        late = await hasty
        go.set()
        return [*late, *await patient]

    assert [one.origin for one in forecasting(predict, pair)] == ["late", origin]
    assert calls == [["hasty", "patient"]]
    assert caplog.messages == (["lengths could not be predicted"] if error else [])
