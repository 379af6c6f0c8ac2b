"""Loads and warms up the predictor of output lengths, which runs in the service's own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import PredictorModel
from registry import codec
from serving.packing.engine.forecaster import MAX_TEXTS, Predict, Prediction

WARM = ("a prompt", "a longer prompt of several words")
FULL = ("word " * 64,) * MAX_TEXTS
"""As many prompts as are ever predicted together, so that their memory is taken at the start."""


def load(folder: Path, digest: str) -> Predict:
    """Return a function that predicts the lengths of outputs.

    Raises `DigestError` if the predictor has changed since it was published, `ArtifactError` if it cannot be used.
    """
    torch.set_num_threads(1)
    # oneDNN keeps something of each number and length of prompts, so that the service grew for hours; it is no faster here.
    torch.backends.mkldnn.set_flags(False)
    model = PredictorModel.of(codec.load(Predictor, folder, digest))

    def predict(texts: Sequence[str]) -> list[Prediction]:
        return [(tuple(forecast.tokens), forecast.bucket) for forecast in model.predict(texts)]

    predict(FULL)
    predict(WARM)
    return predict
