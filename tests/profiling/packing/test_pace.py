"""How many prompts a second a predictor forecasts, measured as it is served."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from pliant.profiling.packing import pace
from pliant.serving.packing.engine.forecaster import MAX_TEXTS


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
