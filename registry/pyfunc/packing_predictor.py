"""A predictor of output lengths in any MLflow client: a data frame of prompts -> quantiles of the output's tokens.

The frame has a column `text`, the prompt as the service reads it: without a chat template's special tokens. What comes back
has `q0.05` to `q0.99`, tokens that so large a share of such outputs does not exceed, and `bucket`, the upper bound in tokens
of the likeliest of the published classes.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import PredictorModel
from registry import codec


class PackingPredictor(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.predictor = codec.load(Predictor, Path(context.artifacts["bundle"]))
        self.model = PredictorModel.of(self.predictor)

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        predictions = self.model.predict(list(model_input["text"]))
        columns: dict[str, list[float] | list[int]] = {
            f"q{level:g}": [float(prediction.tokens[at]) for prediction in predictions]
            for at, level in enumerate(self.predictor.levels)
        }
        return pd.DataFrame(columns | {"bucket": [prediction.bucket for prediction in predictions]})


mlflow.models.set_model(PackingPredictor())
