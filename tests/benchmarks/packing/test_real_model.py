"""The targets of the real model compare with transformers' best setting, and the predictor's with its artifact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pliant.benchmarks.packing.real_model import FIFO, OFFLINE, ONLINE, OURS, RealModel
from pliant.packing.scheduling.forecast import QUANTILES


def row(load: str, name: str, speed: float, mean: float, text: int = 1) -> Any:
    return SimpleNamespace(
        load=load,
        contender=SimpleNamespace(name=name),
        ran=SimpleNamespace(texts=((text,),)),
        figures=lambda: {"tokens/s": speed, "mean s": mean},
    )


def test_the_rivals_best_setting_counts_for_each_figure() -> None:
    coverage = {f"coverage_{level:g}": level for level in QUANTILES} | {"coverage_0.5": 0.52}
    metrics = {"pinball": 0.15, "constant_pinball": 0.2, "tau": 0.45, **coverage}
    rows = (
        row(OFFLINE, FIFO, 100.0, 9.0), row(OFFLINE, FIFO, 120.0, 8.0), row(OFFLINE, OURS, 180.0, 5.0, 2),
        row(ONLINE, FIFO, 90.0, 4.0), row(ONLINE, FIFO, 80.0, 2.0), row(ONLINE, OURS, 95.0, 1.0),
    )  # fmt: skip
    predictor: Any = SimpleNamespace(metrics=metrics)
    figures = [target.measured for target in RealModel(rows, 1.0, predictor).targets()]
    assert figures == pytest.approx([1.5, 0.5, 1, 0.75, 0.45, 0.02])
