"""Measures two encoders beside each other, each as its bins are served: launches in turns, answers to test texts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.bins.simulated import typical
from pliant.flows.beside import ROWS, Answers, Beside, same_device, slices
from pliant.flows.bins.config import BinsFlowConfig
from pliant.profiling.bins.accuracy import outputs
from pliant.profiling.interleaved import BUDGET, interleave
from pliant.progress import Progress, share
from pliant.training.text_data import TextData

Side = tuple[Encoder, Bins]
SHARED = 3  # static shapes of both, at most


def beside(
    config: BinsFlowConfig,
    sides: tuple[Side, Side],
    data: TextData | None,
    home: Path,
    progress: Progress,
    budget: float = BUDGET,
) -> Beside:
    """Return the ratio and, where there are texts that both, champion and challenger, were tested on, the answers to these.

    `home`: compiled files are below it. Raises what a runtime raises that cannot be opened or run.
    """
    (_, old), (_, new) = sides
    same_device(old.device_class, new.device_class)
    static = sorted(set(old.shapes[:-1]) & set(new.shapes[:-1]))
    static = static[:: max(1, len(static) // SHARED)][:SHARED]
    longest, most = (min(getattr(bins.shapes[-1], name) for _, bins in sides) for name in ("length", "batch"))
    middle, long = (int(np.clip(n, 1, longest)) for n in np.quantile(typical(new.lengths), [0.5, 0.9]))
    launches = [(place, shape.length, shape.batch) for place, shape in enumerate(static)]
    launches += [(len(static), *launch) for launch in ((middle, 1), (long, 1), (middle, most))]  # dynamic
    calls = []
    for encoder, bins in sides:
        where = cache_folder(home, bins.encoder, bins.device_class), bins.files, config.device, config.threads
        runtime = BinsRuntime(encoder, [*static, bins.shapes[-1]], bins.engine, *where, precision=bins.precision)
        texts = {n: (np.ones(n, np.int32), np.zeros(n, np.int8)) for _, n, _ in launches}
        calls.append([partial(runtime.run, place, [texts[length]] * batch) for place, length, batch in launches])
    seconds = [
        [bins.seconds[bins.shapes.index(shape)] for shape in static]
        + [bins.dynamic.between(*launch) for _, *launch in launches[len(static) :]]
        for _, bins in sides
    ]
    ratio = interleave(calls, config.device, share(progress, 0, 50), budget)
    answers = {}
    if data is not None and data.classes and all(encoder.classes == data.classes for encoder, _ in sides):
        rows = data.split.test[:ROWS]
        texts_R, label_R = data.texts(rows), data.labels[rows].astype(np.int64)
        old_R, new_R = (
            outputs(encoder, texts_R, config.device, config.threads, precision=bins.precision).argmax(1) == label_R
            for encoder, bins in sides
        )
        answers[data.name] = Answers(old_R, new_R, slices(label_R, data.classes, ()))
    return Beside(ratio, tuple(zip(*seconds, strict=True)), answers)
