"""What a client is told of its choices: tokens, forecasts, and the error of the first that failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.forecaster import Forecast
from pliant.serving.packing.reply import Choice, Reply


def reply(*finishes: str, **targets: float) -> Reply:
    """Return choices of three tokens in a second, the first half a second after it came."""
    request = SimpleNamespace(chat=False, deadline=2.5)
    made = Reply(request, "tales", "f", 11, lambda _output: None)
    prompt = Prompt(0, 10.0, 3, 9, (1.0,) * 8, **targets)
    for index, finish in enumerate(finishes):
        output = SimpleNamespace(
            tokens=[7] * 3, finish=finish, fault="", writer=SimpleNamespace(waiting=0), first_token_at=10.5,
            last_token_at=11.5, first=SimpleNamespace(prompt=prompt),
        )  # fmt: skip
        made.choices.append(Choice(index, output, Forecast((4.0,) * 8, 8, "model"), "", "p"))
    return made


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
    error = reply(finish, "failed").api_error()
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
    (choice,) = reply("stop", **targets).choices
    assert (choice.on_time, choice.has_targets) == (on_time, bool(targets))
