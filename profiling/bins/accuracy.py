"""Measures how often an encoder with a classifier's head is right on texts that it has not seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime, Payload
from pliant.errors import InputError
from pliant.models.text import Reader
from pliant.progress import Progress, silent

BATCH = 32


def accuracy(
    encoder: Encoder,
    texts: list[tuple[str, str | None]],
    label_R: NDArray[np.int64],
    device: str = "cpu",
    threads: int = 1,
    progress: Progress = silent,
) -> float:
    """Return the share of texts whose largest logit is the label's class. Texts of like length share a batch."""
    if not encoder.classes or not texts:
        raise InputError("encoder", encoder.name, "a classifier, and texts to test it on")
    reader = Reader(encoder.tokenizer, encoder.max_length)
    readings = [reader.read(*text) for text in texts]
    payloads: list[Payload] = [(reading.ids, reading.types) for reading in readings]
    runtime = BinsRuntime(encoder, [Shape(encoder.max_length, BATCH, True)], "eager", None, {}, device, threads)
    order, right = sorted(range(len(texts)), key=lambda row: len(payloads[row][0])), 0
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        outputs = runtime.run(0, [payloads[row] for row in rows]).outputs
        right += sum(int(logits.argmax()) == label_R[row] for row, logits in zip(rows, outputs, strict=True))
        progress(start + len(rows), len(order))
    return right / len(order)
