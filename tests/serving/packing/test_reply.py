"""What a client is told of its choices: tokens, forecasts, and the error of the first that failed."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace

import pytest

from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.forecaster import Forecast
from pliant.serving.packing.reply import Choice, Reply

REQUEST = SimpleNamespace(
    chat=False, deadline=2.5, choices=1, best_of=1, usage=True, continuous_usage=False, ignored=()
)


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
    made_of = Reply(REQUEST, "tales", "f", 11, (cancelled if cancelled is not None else []).append)
    made_of.choices = [Choice(index, each, forecast, "", "p") for index, each in enumerate(outputs)]
    return made_of


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
