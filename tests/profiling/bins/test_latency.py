"""The staircase: which shapes are measured, in turns, and that tables never contradict themselves."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.profiling.bins.latency import LatencyConfig, in_turns, profile
from tests.fixtures.bins.encoders import random_payload, tiny_encoder

FAST = LatencyConfig(lengths=(4, 8, 60), batches=(1, 3), repeats=2, least=1, budget=0.1)


@pytest.mark.parametrize("engine", ["eager"])
def test_every_candidate_is_measured_and_the_longest_and_the_dynamic_runtime_at_the_same_points(tmp_path, engine):
    reports = []
    encoder = tiny_encoder()
    measured = profile(encoder, engine, tmp_path, FAST, progress=lambda *at: reports.append(at))
    assert list(measured.static) == [Shape(length, batch) for length in (4, 8, 40) for batch in (1, 3)]
    assert (measured.dynamic.settings, measured.dynamic.batches) == ((4, 8, 40), (1, 3))
    for rows in (np.reshape(list(measured.static.values()), (3, 2)), np.array(measured.dynamic.seconds)):
        assert (rows > 0).all()
        assert (np.diff(rows, axis=0) >= 0).all()
        assert (np.diff(rows, axis=1) >= 0).all()
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert reports[-1] == (100, 100)
    if engine == "onnx":
        runtime = BinsRuntime(encoder, list(measured.static), engine, tmp_path, measured.files)
        assert len(runtime.run(0, [random_payload(np.random.default_rng(0), 3)]).outputs) == 1


class Machine:
    """A clock that calls move forward, and that runs at half speed from some moment on."""

    def __init__(self, slow_from: float) -> None:
        self.now, self.order, self._slow_from = 0.0, [], slow_from

    def call(self, name: int, seconds: float):
        def run() -> None:
            self.order.append(name)
            self.now += seconds * (2 if self.now >= self._slow_from else 1)

        return run


def test_calls_take_turns_and_a_drift_hits_all_alike():
    machine = Machine(slow_from=20)
    config = LatencyConfig(warmup=1, repeats=5, least=5)
    seconds = in_turns([machine.call(0, 1), machine.call(1, 3)], config, lambda *at: None, lambda: machine.now)
    assert machine.order == [0, 1] * 6
    assert seconds.tolist() == [1, 3]


def test_a_long_call_is_repeated_until_its_budget_is_spent():
    machine = Machine(slow_from=1e9)
    config = LatencyConfig(warmup=1, repeats=6, least=2, budget=4)
    in_turns([machine.call(0, 0.1), machine.call(1, 3)], config, lambda *at: None, lambda: machine.now)
    assert (machine.order.count(0), machine.order.count(1)) == (7, 3)
