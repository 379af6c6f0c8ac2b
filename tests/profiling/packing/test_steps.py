"""Profiling an engine's iterations: which states it measures, and that they are what they are said to be."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory
from pliant.profiling.packing import pace
from pliant.profiling.packing.precision import GAIN, REPEATS, WARMUP, fastest
from pliant.profiling.packing.steps import StepsConfig, profile
from pliant.serving.packing.engine.forecaster import MAX_TEXTS
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.packing.published import predictor

MEMORY = Memory(pages=60, page_tokens=8, host_pages=10, step_tokens=48, sequences=16)
QUICK = StepsConfig(sequences=(1, 4, 64), fills=(0.1, 0.8), prompts=(0.0, 0.5), warmup=1, repeats=3)


def test_every_state_that_fits_is_measured_once() -> None:
    measured, reports = profile(tiny_generator(), MEMORY, QUICK), []
    assert [(point.queries, point.sequences) for point in measured.points] == [
        (1, 1), (24, 2), (1, 1), (24, 2), (4, 4), (26, 5), (4, 4), (26, 5),
    ], "64 sequences are more than an iteration takes"  # fmt: skip
    assert all(point.seconds > 0 and point.cached >= point.queries for point in measured.points)
    assert measured.swap > 0
    profile(tiny_generator(), MEMORY, replace(QUICK, sequences=(1,)), progress=lambda *at: reports.append(at))
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_a_memory_that_holds_none_of_it_is_refused() -> None:
    with pytest.raises(InputError, match="room for one of the sequences"):
        profile(tiny_generator(), replace(MEMORY, pages=1), QUICK)


@pytest.mark.parametrize(
    ("field", "value"), [("sequences", ()), ("sequences", (0,)), ("fills", (1.5,)), ("prompts", ()), ("repeats", 0)]
)
def test_an_impossible_setting_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        StepsConfig(**{field: value})


@pytest.fixture
def clocked(monkeypatch):
    """A predictor that takes 10 ms and 1 ms a prompt, by the clock that is read."""
    now, calls = [0.0], []

    def predict(texts):
        calls.append((len(texts), torch.get_num_threads()))
        now[0] += 0.010 + 0.001 * len(texts)

    monkeypatch.setattr(pace, "load", lambda artifact, device: SimpleNamespace(predict=predict))
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now[0])
    return calls


def test_it_is_measured_alone_and_with_as_many_as_are_served_together_in_one_thread(clocked):
    found = pace.measure(None, ["a", "b", "c"], "cpu", seconds=0.1)
    assert (found.alone, found.prompts_per_second) == (pytest.approx(0.011), pytest.approx(32 / 0.042))
    sizes = [size for size, _ in itertools.groupby(size for size, _ in clocked)]
    assert sizes == [1, pace.TOGETHER] and {threads for _, threads in clocked} == {1}
    assert pace.TOGETHER == MAX_TEXTS


def test_without_a_prompt_nothing_can_be_measured():
    with pytest.raises(InputError, match="prompts is 0, but must be at least one"):
        pace.measure(predictor("g"), [], "cpu")


BOTH = ("float32", "bfloat16")


class Clock:
    """Lets passes last what is said, in turns."""

    def __init__(self, *seconds: float) -> None:
        self.now, self.reads, self.seconds = 0.0, 0, seconds

    def __call__(self) -> float:
        passes, ends = divmod(self.reads, 2)
        self.now += self.seconds[passes % len(self.seconds)] if ends else 0.0
        self.reads += 1
        return self.now


@pytest.mark.parametrize(
    ("seconds", "best"),
    [((1.0, 0.5), "bfloat16"), ((1.0, 0.99 * GAIN), "bfloat16"), ((1.0, 0.95), "float32"), ((1.0, 3.0), "float32")],
)
def test_another_precision_is_taken_only_where_it_gains_a_tenth(seconds, best):
    clock = Clock(*seconds)
    chosen, medians = fastest(tiny_generator(), BOTH, 4, 1, clock)
    assert chosen == best
    assert medians == pytest.approx(dict(zip(BOTH, seconds, strict=True)))
    assert clock.reads == 2 * 2 * (WARMUP + REPEATS)
