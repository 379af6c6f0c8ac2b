"""Measures how often an encoder with a classifier's head is right, and what half precision costs of that.

Shape suffixes: R texts, K outputs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime, Payload
from pliant.models.text import Reader
from pliant.precision import FLOAT32
from pliant.progress import Progress, share, silent

BATCH = 32

Text = tuple[str, str | None]


def cost(
    encoder: Encoder,
    texts: list[Text],
    label_R: NDArray[np.int64] | None,
    precision: str,
    device: str = "cpu",
    threads: int = 1,
    progress: Progress = silent,
) -> float:
    """Return what this precision costs against float32: the share of right answers that are lost.

    Without labels a class that changes is a right answer lost. For an embedding it is the mean of one minus the cosine of
    both embeddings, for a regression the mean difference in standard deviations of the values.
    """
    full_RK = outputs(encoder, texts, device, threads, share(progress, 0, 50))
    half_RK = outputs(encoder, texts, device, threads, share(progress, 50, 100), precision)
    if encoder.classes:
        full_R, half_R = full_RK.argmax(1), half_RK.argmax(1)
        if label_R is None:
            return float((full_R != half_R).mean())
        return float((full_R == label_R).mean() - (half_R == label_R).mean())
    if encoder.head == "classification":
        return float(np.abs(half_RK - full_RK).mean() / max(float(full_RK.std()), np.finfo(np.float32).tiny))
    length_R = np.linalg.norm(full_RK, axis=1) * np.linalg.norm(half_RK, axis=1)
    return float((1 - (full_RK * half_RK).sum(1) / length_R).mean())


def outputs(
    encoder: Encoder,
    texts: list[Text],
    device: str,
    threads: int,
    progress: Progress = silent,
    precision: str = FLOAT32,
) -> NDArray[np.float32]:
    """Return the outputs [R, K] of all texts, in plain torch. Texts of like length share a batch."""
    reader = Reader(encoder.tokenizer, encoder.max_length)
    readings = [reader.read(*text) for text in texts]
    payloads: list[Payload] = [(reading.ids, reading.types) for reading in readings]
    dynamic = [Shape(encoder.max_length, BATCH, True)]
    runtime = BinsRuntime(encoder, dynamic, "eager", None, {}, device, threads, precision=precision)
    order = sorted(range(len(texts)), key=lambda row: len(payloads[row][0]))
    by_row: dict[int, NDArray[np.float32]] = {}
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        by_row |= zip(rows, runtime.run(0, [payloads[row] for row in rows]).outputs, strict=True)
        progress(start + len(rows), len(order))
    return np.stack([by_row[row] for row in range(len(texts))])
