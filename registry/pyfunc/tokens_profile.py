"""A tokens profile in any MLflow client: a data frame of (gamma, batch) -> seconds of one launch on the profiled device.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.tokens.artifact import Profile
from registry import codec


class TokensProfile(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.latency = codec.load(Profile, Path(context.artifacts["bundle"])).latency

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        rows = zip(model_input["gamma"], model_input["batch"], strict=True)
        return pd.DataFrame({"seconds": [_seconds(self.latency, int(gamma), int(batch)) for gamma, batch in rows]})


def _seconds(latency: LatencyTable, gamma: int, batch: int) -> float:
    if gamma not in latency.settings:
        raise InputError("gamma", gamma, f"one of {latency.settings}")
    if batch < 1:
        raise InputError("batch", batch, "at least 1")
    return latency.at(gamma, batch)


mlflow.models.set_model(TokensProfile())
