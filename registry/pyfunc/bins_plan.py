"""Bins in any MLflow client: a data frame of (length, batch) -> the runtime that is fastest for them, and its seconds.

`length` is that of the longest text in tokens, `batch` the number of texts; what comes back is what they are padded to and
the seconds of one launch on the profiled device. The encoder is a model of its own (encoder.py).

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from pliant.bins.artifact import Bins, Shape
from pliant.errors import InputError
from registry import codec

Answer = tuple[float, int, int, str]


class BinsPlan(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.bins = codec.load(Bins, Path(context.artifacts["bundle"]))

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        rows = zip(model_input["length"], model_input["batch"], strict=True)
        answers = [_fastest(self.bins, int(length), int(batch)) for length, batch in rows]
        return pd.DataFrame(answers, columns=["seconds", "padded_length", "padded_batch", "runtime"])


def _fastest(bins: Bins, length: int, batch: int) -> Answer:
    largest = bins.shapes[-1]
    if not (1 <= length <= largest.length and 1 <= batch <= largest.batch):
        raise InputError("texts", f"{batch} of {length} tokens", f"1 to {largest.batch} of 1 to {largest.length}")
    fitting = (index for index, shape in enumerate(bins.shapes) if _fits(shape, length, batch))
    return min(_answer(bins, index, length, batch) for index in fitting)


def _fits(shape: Shape, length: int, batch: int) -> bool:
    return length <= shape.length and batch <= shape.batch


def _answer(bins: Bins, index: int, length: int, batch: int) -> Answer:
    shape = bins.shapes[index]
    if shape.dynamic:
        return bins.dynamic.between(length, batch), length, batch, "dynamic"
    return bins.seconds[index], shape.length, shape.batch, "static"


mlflow.models.set_model(BinsPlan())
