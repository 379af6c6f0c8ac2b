"""One level of a cascade in any MLflow client: a data frame of texts -> label and (uncalibrated) confidence a row.

The frame has a column `text` and, where the model was trained on pairs, `text_pair`. A regressor gives its value as the
label and no confidence.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from pliant.cascade.calibrate import softmax
from pliant.cascade.runtime import CascadeRuntime
from pliant.models.artifact import Classifier
from pliant.models.text import Reader
from registry import codec


class CascadeClassifier(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.classifier = codec.load(Classifier, Path(context.artifacts["bundle"]))
        self.reader = Reader(self.classifier.tokenizer, self.classifier.max_length)
        self.runtime = CascadeRuntime({0: self.classifier}, (context.model_config or {}).get("device", "cpu"))

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        seconds = model_input["text_pair"] if "text_pair" in model_input else [None] * len(model_input)
        pairs = zip(model_input["text"], seconds, strict=True)
        logits = [self._logits(first, second) for first, second in pairs]
        return _frame(self.classifier.classes, logits)

    def _logits(self, first: str, second: str | None) -> np.ndarray[Any, Any]:
        reading = self.reader.read(first, second)
        return np.asarray(self.runtime.run(0, [(reading.ids, reading.types)], False).logits[0], np.float64)


def _frame(classes: tuple[str, ...], logits: list[np.ndarray[Any, Any]]) -> pd.DataFrame:
    if not classes:
        return pd.DataFrame({"label": [float(row[0]) for row in logits]})
    rows = [softmax(row[None], 1.0)[0] for row in logits]
    return pd.DataFrame(
        {
            "label": [classes[int(row.argmax())] for row in rows],
            "confidence": [float(row.max()) for row in rows],
        }
    )


mlflow.models.set_model(CascadeClassifier())
