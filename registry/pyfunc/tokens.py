"""Artifacts of tokens in an MLflow client. Images are uint8 [N, H, W, 3] at the backbone's own size.

`load_model(..., model_config={"device": "cuda"})` chooses the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.registry import codec
from pliant.registry.pyfunc import Predictor, Values, fetched
from pliant.tokens.artifact import Backbone, Profile, Task
from pliant.tokens.runtime import Payload, TokensRuntime

BATCH = 64  # images at once, for the memory's sake


class BackboneFeatures:
    """Images -> features float32 [N, D]."""

    def __init__(self, folder: Path, config: Values) -> None:
        backbone = codec.load(Backbone, folder)
        self.runtime = TokensRuntime(backbone, codec.digest(folder), [], config.get("device", "cpu"))

    def predict(self, images: NDArray[np.uint8], params: Values) -> NDArray[np.float32]:  # noqa: ARG002
        features = [self.runtime.features(batch) for batch in _batches(images)]
        return np.concatenate(features) if features else np.zeros((0, self.runtime.width), np.float32)


class TaskProbabilities:
    """Images -> probabilities, a column a class. `params={"gamma": -5}` chooses the gamma, or the point of that number.

    The backbone's weights are not stored with each task: `model_config["backbone"]` says where in the registry they are.
    """

    def __init__(self, folder: Path, config: Values) -> None:
        self.task = codec.load(Task, folder)
        backbone = fetched(
            Backbone, config["backbone"], self.task.backbone, f"task {self.task.name}", "backbone", "made"
        )
        device, points = config.get("device", "cpu"), self.task.points
        self.runtime = TokensRuntime(backbone, self.task.backbone, [self.task], device, points=points)

    def predict(self, images: NDArray[np.uint8], params: Values) -> pd.DataFrame:
        return _probabilities(self.runtime, int(params.get("gamma", 0)), self.task.name, self.task.classes, images)


class LaunchSeconds:
    """A data frame of (gamma, batch) -> seconds of one launch on the profiled device."""

    def __init__(self, folder: Path, config: Values) -> None:  # noqa: ARG002
        self.latency = codec.load(Profile, folder).latency

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:  # noqa: ARG002
        rows = zip(frame["gamma"], frame["batch"], strict=True)
        return pd.DataFrame({"seconds": [self._seconds(int(gamma), int(batch)) for gamma, batch in rows]})

    def _seconds(self, gamma: int, batch: int) -> float:
        if gamma not in self.latency.settings:
            raise InputError("gamma", gamma, f"one of {self.latency.settings}")
        if batch < 1:
            raise InputError("batch", batch, "at least 1")
        return self.latency.at(gamma, batch)


def _probabilities(
    runtime: TokensRuntime, gamma: int, task: str, classes: tuple[str, ...], images: NDArray[np.uint8]
) -> pd.DataFrame:
    rows = [
        row
        for batch in _batches(images)
        for row in runtime.run(gamma, [Payload(task, np.asarray(image)) for image in batch]).probabilities
    ]
    return pd.DataFrame(np.reshape(rows, (-1, len(classes))), columns=list(classes))


def _batches(images: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    return (images[at : at + BATCH] for at in range(0, len(images), BATCH))


KINDS: Mapping[str, type[Predictor]] = {
    Backbone.KIND: BackboneFeatures,
    Task.KIND: TaskProbabilities,
    Profile.KIND: LaunchSeconds,
}
