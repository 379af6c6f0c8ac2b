"""The targets of the real model compare with transformers' best setting, and the predictor's with its artifact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.packing import real_model
from benchmarks.packing.real_model import FIFO, OFFLINE, ONLINE, OURS, RealModel
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.request import Prompt


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


def test_requests_arrive_with_numbers_from_0_and_are_no_batch() -> None:
    prompt = Prompt(40, 0.0, 3, 9, (2.0,) * 8, offline=True)
    later = real_model._arriving([Submission(prompt, (1, 2, 3)), Submission(prompt, (4, 5, 6))], 2.0)
    assert [each.prompt.id for each in later] == [0, 1] and not any(each.prompt.offline for each in later)
    assert 0 < later[0].prompt.arrival < later[1].prompt.arrival
