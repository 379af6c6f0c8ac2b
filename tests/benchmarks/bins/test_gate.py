"""The bench of the gate's speed: who counts as refused, with profiles and ratios that are given."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pliant.benchmarks.bins import gate
from pliant.flows.beside import Beside
from pliant.profiling.interleaved import Ratio
from tests.fixtures.bins.tiny import some_bins


@pytest.mark.parametrize(("spread", "refused"), [(0.02, [0.0, 2.0]), (0.5, [0.0, 0.0])])
def test_equals_pass_and_a_slower_one_is_refused_where_the_interval_shows_it(spread, refused, monkeypatch):
    """Every challenger is profiled at half the machine's speed."""

    def profiled(layers, seed):
        factor = layers / gate.LAYERS * (2 if seed else 1)
        return layers, some_bins(factor, encoder=str(seed))

    def beside(_settings, sides, *_):
        ratio = sides[1][0] / sides[0][0]
        return Beside(Ratio(ratio, ratio - spread, ratio + spread), ((1.0, 2 * ratio),))

    for name, fake in {"profiled": profiled, "beside": beside, "busy": lambda **_: nullcontext(), "RUNS": 2}.items():
        monkeypatch.setattr(gate, name, fake)
    context = SimpleNamespace(stage=lambda _: nullcontext(lambda *_: None))
    assert [target.measured for target in gate.gate(context)[0]] == refused
