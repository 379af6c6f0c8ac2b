"""A setting of the bins flow that is done in seconds, and bins without any model, for the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pliant.bins.artifact import Bins, Shape
from pliant.latency import LatencyTable

SETTING: Mapping[str, Any] = {
    "embedded": {
        "scratch": {"width": 16, "layers": 1, "heads": 2, "vocabulary": 80, "positions": 40},
        "classifier": {"epochs": 2, "batch": 16, "max_length": 32, "head_rate": 5e-3},
    },
    "engine": {"engine": "eager"},
    "latency": {"lengths": [8, 16], "batches": [1, 2], "warmup": 0, "repeats": 1, "least": 1},
    "edges": {"most": 3, "batches": [1, 2]},
    "gate": {"seeds": 1, "tolerance": 5.0},  # so that whatever is made is promoted
    "reference": {"quiet": [0.5], "loud": [1.5], "seconds": 0.1},
}


def setting(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tiny setting on the texts in `folder`, with some of its top-level keys replaced."""
    return {"streams": [{"data": f"json:{folder / 'things.jsonl'}"}], **SETTING, **changes}


def some_bins(factor: float = 1.0, edges: tuple[int, ...] = (16, 64), **changes: Any) -> Bins:
    """A dynamic launch takes 2 ms and 20 us a token and text, times `factor`; a static one half of that."""
    lengths, batches = (1, 16, 64), (1, 2, 4)
    rows = tuple(tuple(factor * (0.002 + 2e-5 * n * b) for b in batches) for n in lengths)
    dynamic = LatencyTable(lengths, batches, rows)
    static = tuple(Shape(edge, batch) for edge in edges for batch in batches)
    requests = np.zeros(65, dtype=np.int64)
    requests[[5, 12, 30, 50]] = 40, 30, 20, 10
    made = Bins(
        name="things",
        encoder="digest",
        device_class="cpu",
        engine="onnx",
        slo=0.15,
        shapes=(*static, Shape(64, 4, True)),
        seconds=tuple(dynamic.between(shape.length, shape.batch) / 2 for shape in static),
        dynamic=dynamic,
        lengths=requests,
        load_seconds=0.5,
        placement="shared",
        files={},
        versions={},
    )
    return replace(made, **changes)
