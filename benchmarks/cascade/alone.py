"""One request at a time, as in the paper: every method runs every text, in turns, on the real models, from text to label.

Measured are wall seconds of tokenising, models, pruning, routing and ensemble on one core. Methods take turns text by text
in random order, so that a busy machine slows all alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.cascade.contest import METHODS, halves, matched, only, plan
from benchmarks.cascade.study import Latencies, Study, material
from pliant.cascade.artifact import Cascade
from pliant.cascade.evaluate import Ground, draws, subset
from pliant.cascade.run import Models, load, run
from pliant.device import threads
from pliant.progress import Progress, silent

DROP = 0.01


@dataclass(frozen=True, slots=True)
class Alone:
    """Mean seconds and accuracy of every method on the same texts. `equal`: ours, planned for the accuracy of `tabi`."""

    texts: int
    seconds: dict[str, float]
    accuracy: dict[str, float]
    early: dict[str, float]

    def ratio(self, method: str, of: str) -> float:
        return self.seconds[method] / self.seconds[of]


def measure(study: Study, measured: Latencies, texts: int, progress: Progress = silent, seed: int = 0) -> Alone:
    """Plans on one half of the held-out texts and runs `texts` of the other."""
    first, second = halves(len(study.outputs.labels), seed)
    planning = subset(study.outputs, first)
    cascade = plan(material(study, measured), planning, seed, DROP, len(second))
    methods = {one.name: one for one in cascade.candidates if one.name in METHODS}
    methods["large"] = only(len(cascade.levels) - 1)
    if "tabi" in methods:
        whole = Ground(planning, cascade.levels, cascade.tolerance)
        (methods["equal"],) = matched(methods["tabi"], whole, (0.0,))
    cascade = replace(cascade, candidates=tuple(replace(one, name=name) for name, one in methods.items()))
    chosen = np.random.default_rng(seed).permutation(second)[:texts]
    with threads(1), torch.inference_mode():
        return _run(cascade, load(cascade, study.classifiers), study, chosen, progress, seed)


def _run(
    cascade: Cascade, models: Models, study: Study, rows: NDArray[np.int64], progress: Progress, seed: int
) -> Alone:
    texts, labels, rng = study.texts, study.outputs.labels, np.random.default_rng(seed)
    count = len(cascade.candidates)
    seconds, correct, early = np.zeros((count, len(rows))), np.zeros((count, len(rows))), np.zeros((count, len(rows)))
    draw_R = draws(len(rows))
    for number in range(count):  # once before the clock runs
        run(cascade, models, [texts[rows[0]]], number)
    for at, row in enumerate(rows):
        for number in rng.permutation(count):
            started = time.perf_counter()
            (answered,) = run(cascade, models, [texts[row]], int(number), draw_R[at : at + 1])
            seconds[number, at] = time.perf_counter() - started
            correct[number, at] = _right(cascade, answered.label, labels[row])
            early[number, at] = len(answered.lengths) == 1
        progress(at + 1, len(rows))
    names = [candidate.name for candidate in cascade.candidates]
    means = [dict(zip(names, map(float, one.mean(axis=1)), strict=True)) for one in (seconds, correct, early)]
    return Alone(len(rows), *means)


def _right(cascade: Cascade, label: str | float, wanted: float) -> bool:
    if isinstance(label, str):
        return label == cascade.classes[int(wanted)]
    return abs(label - wanted) <= cascade.tolerance
