"""A tokens task in any MLflow client: images uint8 [N, H, W, 3] at the backbone's size -> probabilities, a column a class.

`predict(images, params={"gamma": -5})` chooses the gamma. The backbone's weights are not stored with each task: they are
fetched from the registry, `model_config["backbone"]` says where, and must have the digest that the task was trained on.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from pliant.errors import BackboneError, DigestError, RegistryError
from pliant.tokens.artifact import Backbone, Task
from pliant.tokens.runtime import Payload, TokensRuntime
from registry import codec

BATCH = 64  # images at once, for the memory's sake


class TokensTask(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        config = context.model_config or {}
        self.task = codec.load(Task, Path(context.artifacts["bundle"]))
        backbone = _backbone(self.task, config["backbone"])
        self.runtime = TokensRuntime(backbone, self.task.backbone, [self.task], config.get("device", "cpu"))

    def predict(self, model_input: np.ndarray, params: dict[str, Any] | None = None) -> Any:
        gamma = int((params or {}).get("gamma", 0))
        payloads = [Payload(self.task.name, np.asarray(image)) for image in model_input]
        batches = [payloads[i : i + BATCH] for i in range(0, len(payloads), BATCH)]
        rows = [row for batch in batches for row in self.runtime.run(gamma, batch).probabilities]
        return pd.DataFrame(np.reshape(rows, (-1, len(self.task.classes))), columns=list(self.task.classes))


def _backbone(task: Task, uri: str) -> Backbone:
    """Return the task's backbone.

    Raises `BackboneError` for another backbone than the task's, `RegistryError` where it cannot be fetched.
    """
    try:
        folder = mlflow.artifacts.download_artifacts(f"{uri}/artifacts/bundle")
    except Exception as error:  # whatever the artifact store may raise
        raise RegistryError(
            f"task {task.name} needs its backbone {uri}, which could not be fetched ({error}): "
            "set MLflow's tracking URI to the registry that holds it"
        ) from error
    try:
        return codec.load(Backbone, Path(folder), task.backbone)
    except DigestError as error:
        raise BackboneError(
            f"task {task.name} was made for another backbone than {uri}, or that one is damaged: {error}"
        ) from error


mlflow.models.set_model(TokensTask())
