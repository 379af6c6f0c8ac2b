"""The model that MLflow runs for every artifact of ours: it reads the artifact's kind and answers as that kind does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from pliant import systems
from pliant.registry import codec


class ArtifactModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        folder = Path(context.artifacts["bundle"])
        kind = codec.kind(folder)
        system = import_module(systems.pyfunc(kind))
        self.predictor = system.KINDS[kind](folder, context.model_config or {})

    # A frame or an array, as the signature says: MLflow warns of a hint that names both.
    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        return self.predictor.predict(model_input, params or {})


mlflow.models.set_model(ArtifactModel())
