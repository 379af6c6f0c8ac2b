"""What a client is told of its choices: tokens, forecasts, and the error of the first that failed."""

from __future__ import annotations

import asyncio
from math import nan
from types import SimpleNamespace

import pytest

from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.forecaster import Forecast
from pliant.serving.packing.reply import Choice, Reply, ReplyInfo


def output(tokens: int = 0, finish: str = "", waiting: int = 0, fault: str = "", **rest) -> SimpleNamespace:
    targets = {name: rest.pop(name) for name in ("ttft", "tpot", "deadline") if name in rest}
    prompt = Prompt(0, 10.0, 3, 9, (1.0,) * 8, **targets)
    times = {"first_token_at": 10.5, "last_token_at": 11.5} if tokens else {"first_token_at": nan, "last_token_at": nan}
    fields = {
        "queued": 0.25,
        "preemptions": 1,
        "recomputed": 5,
        "first": SimpleNamespace(prompt=prompt),
        **times,
        **rest,
    }
    writer = SimpleNamespace(waiting=waiting)
    return SimpleNamespace(tokens=[7] * tokens, finish=finish, writer=writer, fault=fault, **fields)


def reply(*outputs: SimpleNamespace, cancelled: list | None = None) -> Reply:
    forecast = Forecast(tokens=(1.0, 2.0, 3.04, 4.0, 5.0, 6.0, 7.0, 8.0), bucket=8, origin="model")
    made_of = Reply(ReplyInfo("tales", "f", 11, 2.5, True, False), (cancelled if cancelled is not None else []).append)
    made_of.choices = [Choice(index, each, forecast, "", "p") for index, each in enumerate(outputs)]
    return made_of


@pytest.mark.parametrize(
    ("outputs", "begun", "ended"),
    [
        ([output(), output()], False, False),
        ([output(), output(3, waiting=2)], True, False),
        ([output(3, "stop"), output()], True, False),
        ([output(3, "stop"), output(0, "length")], True, True),
    ],
)
def test_it_has_begun_with_the_first_text_and_ended_with_the_last_end(outputs, begun, ended):
    assert (reply(*outputs).begun, reply(*outputs).ended) == (begun, ended)


def test_usage_counts_prompts_once_and_all_outputs():
    usage = reply(output(3, "stop"), output(4, "stop")).usage
    assert usage == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def test_headers_name_a_number_for_each_choice_and_the_longest_wait():
    headers = reply(output(3, "stop"), output(4, "stop", queued=0.5, preemptions=0)).final_headers
    assert headers["x-pliant-actual-tokens"] == "3,4"
    assert headers["x-pliant-queue-seconds"] == "0.500000"
    assert (headers["x-pliant-preemptions"], headers["x-pliant-recomputed-tokens"]) == ("1,0", "5,5")
    assert headers["x-pliant-predicted-tokens"].count(",") == 1


def test_the_details_of_a_choice_are_forecast_and_outcome():
    (choice,) = reply(output(3, "stop", queued=0.12345678)).choices
    assert choice.details == {
        "predicted_tokens": choice.predicted,
        "predicted_quantiles": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "prediction": "model",
        "actual_tokens": 3,
        "queue_seconds": 0.123457,
        "ttft_seconds": 0.5,
        "tpot_seconds": 0.5,
        "on_time": True,
        "preemptions": 1,
        "recomputed_tokens": 5,
    }


@pytest.mark.parametrize(
    ("finish", "status", "code"),
    [
        ("late", 503, "late"),
        ("failed", 500, "engine_failed"),
        ("cancelled", 503, "worker_unavailable"),
        ("slow", 408, "slow_reader"),
    ],
)
def test_the_first_choice_that_failed_is_the_error_with_its_reason(finish, status, code):
    error = reply(output(3, "stop"), output(0, finish)).api_error()
    assert (error.status, error.code) == (status, code) and len(str(error)) > 10
    if finish in ("failed", "cancelled"):
        assert str(reply(output(0, finish, fault="the device is gone")).api_error()) == "the device is gone"


def test_without_a_failure_there_is_no_error():
    assert reply(output(3, "stop"), output(2, "length"), output()).api_error() is None


def test_whoever_waits_is_woken_by_each_change_until_the_condition_holds():
    async def run():
        running = output()
        waiting = reply(running)
        task = asyncio.create_task(waiting.until(lambda each: each.ended))
        await asyncio.sleep(0)
        waiting.notify(running)
        await asyncio.sleep(0.001)
        assert not task.done()
        running.finish = "stop"
        waiting.notify(running)
        await asyncio.wait_for(task, 10)

    asyncio.run(run())


def test_cancelling_cancels_every_output():
    cancelled: list = []
    outputs = [output(), output()]
    reply(*outputs, cancelled=cancelled).cancel()
    assert cancelled == outputs


def test_the_median_of_a_forecast_is_what_is_told_first():
    (choice,) = reply(output(3, "stop")).choices
    assert choice.predicted == 4 and choice.details["predicted_tokens"] == 4
    assert reply(output(), output()).headers == {"x-pliant-predicted-tokens": "4,4"}


@pytest.mark.parametrize(
    ("finish", "sentence"),
    [
        ("late", "deadline is 2.5 seconds, but the queue is too long to answer within it"),
        ("full", "the queue is full; try again later"),
        ("failed", "the engine failed"),
        ("cancelled", "the output was cancelled"),
        ("slow", "the client did not read the stream, so its output was cancelled"),
    ],
)
def test_an_error_says_what_happened(finish, sentence):
    error = reply(output(0, finish), output(0, "failed", fault="later")).api_error()
    assert (str(error), error.status) == (sentence, {"full": 429, "failed": 500, "slow": 408}.get(finish, 503))


def test_nothing_is_waited_for_where_the_condition_holds_already():
    async def run():
        await asyncio.wait_for(reply(output(1, "stop")).until(lambda each: each.ended), 10)
        fresh = reply(output())
        assert not fresh.changed.is_set()
        fresh.notify(fresh.choices[0].output)
        assert fresh.changed.is_set()

    asyncio.run(run())


def test_a_wait_is_rounded_to_microseconds():
    headers = reply(output(1, "stop", queued=0.1234567), output(1, "stop", queued=0.0)).final_headers
    assert headers == {
        "x-pliant-predicted-tokens": "4,4",
        "x-pliant-actual-tokens": "1,1",
        "x-pliant-queue-seconds": "0.123457",
        "x-pliant-ttft-seconds": "0.500000",
        "x-pliant-preemptions": "1,1",
        "x-pliant-recomputed-tokens": "5,5",
    }


@pytest.mark.parametrize(
    ("targets", "on_time"),
    [
        ({}, True),
        ({"ttft": 0.5, "tpot": 0.5, "deadline": 11.5}, True),
        ({"ttft": 0.49}, False),
        ({"tpot": 0.49}, False),
        ({"deadline": 11.4}, False),
    ],
)
def test_an_output_is_on_time_if_it_kept_all_its_targets(targets, on_time):
    (choice,) = reply(output(3, "stop", **targets)).choices
    assert (choice.on_time, choice.has_targets) == (on_time, bool(targets))


def test_an_output_without_a_token_has_no_times_and_one_token_no_pace():
    none, single = reply(output(0, "length"), output(1, "stop", tpot=0.1)).choices
    assert (none.details["ttft_seconds"], none.details["tpot_seconds"]) == (None, None)
    assert (single.details["ttft_seconds"], single.details["tpot_seconds"], single.on_time) == (0.5, None, True)
    headers = reply(output(1, "stop"), output(3, "stop", first_token_at=12.0, last_token_at=13.0)).final_headers
    assert (headers["x-pliant-ttft-seconds"], headers["x-pliant-tpot-seconds"]) == ("2.000000", "0.500000")
    assert "x-pliant-tpot-seconds" not in reply(output(1, "stop")).final_headers
