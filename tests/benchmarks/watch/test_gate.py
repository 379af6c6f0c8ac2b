"""The bench of the gate's speed: who counts as refused, with profiles and ratios that are given."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pliant.benchmarks.watch import gate
from pliant.flows.beside import Beside, Pace
from pliant.profiling.interleaved import Ratio
from tests.fixtures.bins.tiny import some_bins


@pytest.mark.parametrize(("spread", "met"), [(0.02, [True, True]), (0.5, [True, False])])
def test_equals_pass_and_a_slower_one_is_refused_where_the_interval_shows_it(spread, met, monkeypatch):
    """Every challenger is profiled at half the machine's speed."""

    def profiled(layers, seed, home):
        factor = layers / gate.LAYERS * (2 if seed else 1)
        return layers, some_bins(factor, encoder=str(seed))

    def beside(_settings, champion, challenger, *_):
        ratio = challenger[0] / champion[0]
        return Beside(Pace(Ratio(ratio, ratio - spread, ratio + spread), ((1.0, 2 * ratio),)))

    for name, fake in {"profiled": profiled, "beside": beside, "busy": lambda **_: nullcontext(), "RUNS": 2}.items():
        monkeypatch.setattr(gate, name, fake)
    context = SimpleNamespace(stage=lambda _: nullcontext(lambda *_: None))
    targets, details = gate.gate(context)
    assert details["ratios, median"] == {"same sizes": 1.0, "a layer more": 1.2}
    refused = [target.measured for target in targets]
    assert refused == [0.0, 2.0 * met[1]]
