"""Measures how long a backbone takes in half precision, over float32: accuracies need measuring only where it is faster."""

from __future__ import annotations

import time

import numpy as np

from pliant.tokens.artifact import FLOAT32, Backbone, Task
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

BATCH, ROUNDS = 16, 5


def slowdown(backbone: Backbone, task: Task, half: str, device: str = "cpu") -> float:
    """Return the seconds of a batch at gamma 0 in the precision `half` over those in float32, median of rounds in turn."""
    full, other = (
        TokensRuntime(backbone, task.backbone, [task], device, Execution(precision=precision))
        for precision in (FLOAT32, half)
    )
    pixel_BHWC = np.random.default_rng(0).integers(0, 256, (BATCH, *[backbone.image_size] * 2, 3), dtype=np.uint8)
    payloads = [Payload(task.name, image) for image in pixel_BHWC]

    def seconds(runtime: TokensRuntime) -> float:
        start = time.perf_counter()
        runtime.run(0, payloads)  # waits for the device
        return time.perf_counter() - start

    for runtime in (full, other):
        seconds(runtime)
    return float(np.median([seconds(other) / seconds(full) for _ in range(ROUNDS)]))
