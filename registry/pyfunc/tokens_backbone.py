"""The tokens backbone in any MLflow client: images uint8 [N, H, W, 3] at its own size -> features float32 [N, D].

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
`load_model(..., model_config={"device": "cuda"})` chooses the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np

from pliant.tokens.artifact import Backbone
from pliant.tokens.runtime import TokensRuntime
from registry import codec

BATCH = 64  # images at once, for the memory's sake


class TokensBackbone(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        backbone = codec.load(Backbone, Path(context.artifacts["bundle"]))
        device = (context.model_config or {}).get("device", "cpu")
        self.runtime = TokensRuntime(backbone, codec.digest(Path(context.artifacts["bundle"])), [], device)

    def predict(self, model_input: np.ndarray) -> np.ndarray[Any, Any]:
        features = [self.runtime.features(model_input[i : i + BATCH]) for i in range(0, len(model_input), BATCH)]
        return np.concatenate(features) if features else np.zeros((0, self.runtime.width), np.float32)


mlflow.models.set_model(TokensBackbone())
