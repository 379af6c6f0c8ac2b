"""The predictor of output lengths, in the service's own process: load, warm up, predict. Knows its model; no threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import PredictorModel
from registry import codec

Told = tuple[tuple[float, ...], int]
"""Quantiles in tokens, and the upper bound of the predicted class in tokens."""

WARM = ("a prompt", "a longer prompt of several words")


def load(folder: Path, digest: str) -> Callable[[Sequence[str]], list[Told]]:
    """Raises `DigestError` where it changed since it was published, `ArtifactError` where it cannot be used."""
    torch.set_num_threads(1)
    model = PredictorModel.of(codec.load(Predictor, folder, digest))

    def predict(texts: Sequence[str]) -> list[Told]:
        return [(tuple(said.tokens), said.bucket) for said in model.predict(texts)]

    predict(WARM)
    return predict
