"""Loads and warms up the predictor of output lengths, which runs in the service's own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import PredictorModel
from registry import codec
from serving.packing.engine.forecaster import Predict, Prediction

WARM = ("a prompt", "a longer prompt of several words")


def load(folder: Path, digest: str) -> Predict:
    """Return a function that predicts the lengths of outputs.

    Raises `DigestError` if the predictor has changed since it was published, `ArtifactError` if it cannot be used.
    """
    torch.set_num_threads(1)
    model = PredictorModel.of(codec.load(Predictor, folder, digest))

    def predict(texts: Sequence[str]) -> list[Prediction]:
        return [(tuple(forecast.tokens), forecast.bucket) for forecast in model.predict(texts)]

    predict(WARM)
    return predict
