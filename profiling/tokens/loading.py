"""Measures how long a device takes to change to another model: from the file to the first answer after warm-up.

What model switching (INFaaS) pays at every change, and token adaptation does not. Knows no file format: `read` brings the
variant in, verification included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from pliant.tokens.artifact import Variant
from pliant.tokens.runtime import Execution, Payload, TokensRuntime


def loading(read: Callable[[], Variant], batches: Sequence[int], device: str = "cpu", repeats: int = 3) -> float:
    """Return the median seconds over `repeats`; each warms up at every one of `batches` and then answers one request.

    From the second time on the operating system may hold the file in memory; on a service that switches it does too.
    """
    return float(np.median([_once(read, batches, device) for _ in range(repeats)]))


def _once(read: Callable[[], Variant], batches: Sequence[int], device: str) -> float:
    start = time.perf_counter()
    variant = read()
    size, task = variant.backbone.image_size, next(iter(variant.tasks))
    execution = Execution(precision=variant.precision)
    runtime = TokensRuntime(variant.backbone, variant.name, variant.adapters(variant.name), device, execution)
    blank = Payload(task, np.zeros((size, size, 3), np.uint8))
    runtime.warm((0,))
    for batch in (*batches, 1):
        runtime.run(0, [blank] * batch)  # waits for the device
    return time.perf_counter() - start
