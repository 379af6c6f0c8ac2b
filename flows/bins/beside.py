"""Measures two encoders beside each other, each as its bins are served: seconds of launches in turns, answers to test texts.

Knows no Prefect and no registry.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.runtimes.cache import cache_folder
from pliant.bins.runtimes.runtime import BinsRuntime, Payload
from pliant.bins.simulated import typical
from pliant.errors import DeviceError
from pliant.flows.beside import ROWS, Answers, Beside, Pace
from pliant.flows.bins.config import BinsFlowConfig
from pliant.profiling.bins.accuracy import outputs
from pliant.profiling.interleaved import ROUNDS, Call, Rounds, interleave
from pliant.progress import Progress, share
from pliant.training.text_data import TextData

Side = tuple[Encoder, Bins]
SHARED = 3  # static shapes of both, at most


def beside(
    config: BinsFlowConfig,
    champion: Side,
    challenger: Side,
    data: TextData | None,
    home: Path,
    progress: Progress,
    rounds: Rounds = ROUNDS,
) -> Beside:
    """Return the pace and, where there are texts that both have been tested on, the answers to these.

    `home`: compiled files are below it. Raises what a runtime raises that cannot be opened or run.
    """
    sides, (old, new) = (champion, challenger), (champion[1], challenger[1])
    if old.device_class != new.device_class:
        raise DeviceError(f"its profile is of {old.device_class}, this device is {new.device_class}")
    launches = _launches(old, new)
    calls = [_calls(config, side, launches, home) for side in sides]
    ratio = interleave(list(zip(*calls, strict=True)), config.device, rounds, share(progress, 0, 50))
    pace = Pace(ratio, tuple((_seconds(old, *launch), _seconds(new, *launch)) for launch in launches))
    if data is None or any(encoder.classes != data.classes for encoder, _ in sides) or not data.classes:
        return Beside(pace)
    rows = data.split.test[:ROWS]
    texts, label_R = data.texts(rows), data.labels[rows].astype(np.int64)
    right = [
        outputs(encoder, texts, config.device, config.threads, precision=bins.precision).argmax(1) == label_R
        for encoder, bins in sides
    ]
    progress(100, 100)
    return Beside(pace, {data.name: Answers(*right, label_R, data.classes)})


Launch = tuple[Shape | None, int, int]
"""The static shape, None for the dynamic one; tokens of a text, and texts."""


def _launches(old: Bins, new: Bins) -> list[Launch]:
    """Return a few that both can run: some static shapes, and dynamic ones of typical lengths."""
    static = sorted(set(old.shapes[:-1]) & set(new.shapes[:-1]))
    shared: list[Launch] = [(s, s.length, s.batch) for s in static[:: max(1, len(static) // SHARED)][:SHARED]]
    longest, most = (min(getattr(bins.shapes[-1], name) for bins in (old, new)) for name in ("length", "batch"))
    middle, long = (int(np.clip(n, 1, longest)) for n in np.quantile(typical(new.lengths), [0.5, 0.9]))
    return [*shared, (None, middle, 1), (None, long, 1), (None, middle, most)]


def _calls(config: BinsFlowConfig, side: Side, launches: list[Launch], home: Path) -> list[Call]:
    encoder, bins = side
    shapes = [*(shape for shape, *_ in launches if shape is not None), bins.shapes[-1]]
    folder = cache_folder(home, bins.encoder, bins.device_class)
    runtime = BinsRuntime(
        *(encoder, shapes, bins.engine, folder, bins.files, config.device, config.threads), precision=bins.precision
    )
    calls: list[Call] = []
    for shape, length, batch in launches:
        text: Payload = np.ones(length, np.int32), np.zeros(length, np.int8)
        calls.append(partial(runtime.run, shapes.index(shape or bins.shapes[-1]), [text] * batch))
    return calls


def _seconds(bins: Bins, shape: Shape | None, length: int, batch: int) -> float:
    """Return what the profile says of a launch."""
    return bins.dynamic.between(length, batch) if shape is None else bins.seconds[bins.shapes.index(shape)]
