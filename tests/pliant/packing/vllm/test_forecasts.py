"""A predictor's process may be slow, silent, talkative or dead: nobody waits for it for long, and no thread is lost."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from pliant.packing.scheduling.forecast import MEDIAN as MIDDLE
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.vllm.forecasts import (
    AFRESH,
    ENOUGH,
    LAST,
    MEDIAN,
    PRIOR,
    SPREAD,
    STARTS,
    WINDOW,
    LearnedLengths,
    Predictions,
)

SAID = tuple(float(x) for x in range(1, 9))
HEAD = "import json, sys, time\n"
ANSWER = """
def answer(row, **more):
    print(json.dumps({"name": row["name"], "tokens": list(range(1, 9)), "bucket": len(row["ids"]), **more}), flush=True)
"""
READY = "print('ready', flush=True)\n"
GOOD = HEAD + ANSWER + READY + "for line in sys.stdin:\n    answer(json.loads(line))\n"
HANG = 60.0  # seconds that only end a hang


@pytest.fixture
def predictor():
    """Start a fake process by the text of its program; all are stopped in the end."""
    begun = []

    def start(program: str, **rest) -> Predictions:
        begun.append(Predictions("", "", [sys.executable, "-c", program], **rest))
        return begun[-1]

    yield start
    for each in begun:
        each.stop()
        assert not each._thread.is_alive()


def until(condition) -> None:
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.005)


def result(predictions: Predictions, name: str):
    forecast = None

    def come():
        nonlocal forecast
        forecast = predictions.take(name)
        return forecast is not None

    until(come)
    return forecast


def test_a_question_is_answered_once_also_one_from_before_the_process_was_ready(predictor):
    predictions = predictor(GOOD)
    predictions.ask("early", [1, 2, 3])
    assert result(predictions, "early") == (SAID, 3)
    assert predictions.take("early") is None
    predictions.ask("later", range(2000))
    assert result(predictions, "later") == (SAID, LAST)
    assert predictions.alive and predictions.predicted == 2


def test_a_forgotten_question_leaves_nothing(predictor):
    predictions = predictor(GOOD)
    predictions.ask("a", [1])
    predictions.forget("a")
    predictions.ask("b", [1])
    result(predictions, "b")
    assert predictions.take("a") is None and not predictions._asked and not predictions._done


@pytest.mark.parametrize(
    "garbage",
    [
        "print('a warning of some library')",
        "print('[]')",
        "print('7')",
        "print('{}')",
        "answer(row, tokens=None)",
        "answer(row, tokens=['x'] * 8)",
        "answer(row, bucket='x')",
        "answer(row, name='of nobody')",
        "sys.stdout.buffer.write(b'\\xff\\xfe\\n')",
    ],
)
def test_what_is_no_forecast_is_passed_over(predictor, garbage):
    loop = f"for line in sys.stdin:\n    row = json.loads(line)\n    {garbage}\n    answer(row)\n"
    predictions = predictor(HEAD + ANSWER + "print('loading')\n" + READY + loop)
    predictions.ask("a", [1])
    assert result(predictions, "a") == (SAID, 1)
    assert predictions.starts == 1


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "print('ready', flush=True)",
        "print('ready', flush=True); input(); raise SystemExit(1)",
        "+",
    ],
)
def test_a_process_that_ends_is_started_three_times_and_then_nobody_waits(predictor, program):
    predictions = predictor(program)
    end = time.monotonic() + HANG
    while predictions._thread.is_alive() and time.monotonic() < end:
        predictions.ask("a", [1])
        predictions.wait(0.05)
    assert predictions.starts == STARTS and not predictions.alive and predictions.failed > 0
    predictions.ask("b", [1])
    predictions.wait(HANG)  # returns at once
    assert predictions.take("b") is None and not predictions._asked


def test_a_process_that_reads_nothing_holds_nobody_up_and_is_started_again(predictor):
    """Ten questions of a thousand tokens fill a pipe."""
    predictions = predictor(HEAD + READY + "time.sleep(1000)", silent_seconds=0.2)
    until(lambda: predictions.alive)
    began = time.process_time()
    for number in range(200):
        predictions.ask(str(number), range(50_000, 51_000))
    assert time.process_time() - began < 10
    until(lambda: predictions.starts == 2)
    assert predictions.failed > 0


def test_one_that_loads_can_be_stopped(predictor):
    predictions = predictor(HEAD + "time.sleep(1000)")
    until(lambda: predictions._process is not None)
    process = predictions._process
    predictions.stop()
    assert process.poll() is not None and predictions.starts == 1
    predictions.ask("a", [1])
    assert not predictions._asked


def test_before_any_output_has_ended_a_log_normal_is_assumed():
    forecast = LearnedLengths().forecast(7)
    assert forecast == PRIOR and len(PRIOR) == len(QUANTILES) and PRIOR[MIDDLE] == MEDIAN
    drawn = np.exp(np.random.default_rng(0).normal(np.log(MEDIAN), SPREAD, 400_000))
    assert np.quantile(drawn, QUANTILES) == pytest.approx(PRIOR, rel=0.03)


def test_prompts_of_a_class_count_on_their_own_once_enough_of_them_have_ended():
    lengths = LearnedLengths()
    for _ in range(ENOUGH - 1):
        lengths.add(10, 5)
    for _ in range(200):
        lengths.add(1000, 500)
    assert lengths.forecast(15)[MIDDLE] == 500  # of all
    lengths.add(8, 5)
    assert lengths.forecast(15) == (5,) * len(QUANTILES)
    assert lengths.forecast(16)[MIDDLE] == 500 and lengths.forecast(1000)[0] == 500


def test_it_follows_the_latest_outputs_and_forgets_old_ones():
    lengths = LearnedLengths()
    for _ in range(WINDOW):
        lengths.add(10, 5)
    for count in range(1, WINDOW + AFRESH):
        lengths.add(10, 50)
        if count == AFRESH:
            assert lengths.forecast(10)[0] == 5 and lengths.forecast(10)[-1] > 5
    assert lengths.forecast(10) == (50,) * len(QUANTILES)
