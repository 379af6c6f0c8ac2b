"""A predictor that does not keep up with the engine is seen when it is trained, not first when it is served."""

from __future__ import annotations

import pytest

from pliant.flows.packing import plan as pace
from pliant.flows.packing.plan import Pace
from pliant.packing.scheduling.reference import capacity
from pliant.profiling.packing.pace import PredictorPace
from tests.fixtures.packing.in_process import packing

FAST, SLOW = Pace(0.001, 900.0, 40.0), Pace(0.001, 30.0, 40.0)


def test_a_predictor_keeps_up_if_one_forecast_is_in_time_and_as_many_are_as_the_engine_bears():
    assert FAST.keeps_up
    assert not SLOW.keeps_up
    assert not Pace(0.06, 900.0, 40.0).keeps_up


@pytest.mark.parametrize(("speed", "warned"), [(1e9, False), (1e-9, True)])
def test_one_that_does_not_keep_up_is_a_warning(monkeypatch, caplog, speed, warned):
    asked = []
    monkeypatch.setattr(pace.pace, "measure", lambda *what: asked.append(what) or PredictorPace(0.001, speed))
    plan = packing("g", "p")
    found = pace.measure_pace("a predictor", ["a prompt"], plan, "cuda")
    assert found == Pace(0.001, speed, capacity(plan)) and asked == [("a predictor", ["a prompt"], "cuda")]
    assert caplog.messages == ([f"tales: {found.describe()}"] if warned else [])
