"""An encoder of the bins system in any MLflow client: a data frame of texts -> labels and confidences, or embeddings.

The frame has a column `text` and, for a model of pairs, `text_pair`. A classifier gives a data frame of label and
(uncalibrated) confidence a row, a regressor its value as the label, an embedding an array [rows, width]. It runs in plain
torch: compiled runtimes belong to one machine (see plan.py for what they take).

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from scipy.special import softmax

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.models.text import Reader
from registry import codec


class BinsEncoder(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.encoder = codec.load(Encoder, Path(context.artifacts["bundle"]))
        self.reader = Reader(self.encoder.tokenizer, self.encoder.max_length)
        dynamic, device = Shape(self.encoder.max_length, 1, True), (context.model_config or {}).get("device", "cpu")
        self.runtime = BinsRuntime(self.encoder, [dynamic], "eager", None, {}, device)

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame | np.ndarray[Any, Any]:
        seconds = model_input["text_pair"] if "text_pair" in model_input else [None] * len(model_input)
        outputs = [self._output(*pair) for pair in zip(model_input["text"], seconds, strict=True)]
        if self.encoder.head == "embedding":
            return np.stack(outputs).astype(np.float32)
        return _frame(self.encoder.classes, outputs)

    def _output(self, first: str, second: str | None) -> np.ndarray[Any, Any]:
        reading = self.reader.read(first, second)
        return self.runtime.run(0, [(reading.ids, reading.types)]).outputs[0]


def _frame(classes: tuple[str, ...], logits: list[np.ndarray[Any, Any]]) -> pd.DataFrame:
    if not classes:
        return pd.DataFrame({"label": [float(row[0]) for row in logits]})
    rows = [softmax(row.astype(np.float64)) for row in logits]
    return pd.DataFrame(
        {
            "label": [classes[int(row.argmax())] for row in rows],
            "confidence": [float(row.max()) for row in rows],
        }
    )


mlflow.models.set_model(BinsEncoder())
