"""A tokens variant in any MLflow client: images uint8 [N, H, W, 3] at its own size -> probabilities, a column a class.

`predict(images, params={"task": "digit"})` chooses the task; by default the first one by name, whose classes the signature
shows. The weights are its own: it needs no other model.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from pliant.errors import InputError
from pliant.tokens.artifact import Variant
from pliant.tokens.runtime import Payload, TokensRuntime
from registry import codec

BATCH = 64  # images at once, for the memory's sake


class TokensVariant(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.variant = codec.load(Variant, Path(context.artifacts["bundle"]))
        device = (context.model_config or {}).get("device", "cpu")
        tasks = self.variant.adapters(self.variant.name)
        self.runtime = TokensRuntime(self.variant.backbone, self.variant.name, tasks, device)

    def predict(self, model_input: np.ndarray, params: dict[str, Any] | None = None) -> Any:
        task = (params or {}).get("task") or min(self.variant.tasks)
        if task not in self.variant.tasks:
            raise InputError("task", task, f"one of {', '.join(sorted(self.variant.tasks))}")
        payloads = [Payload(task, np.asarray(image)) for image in model_input]
        batches = [payloads[i : i + BATCH] for i in range(0, len(payloads), BATCH)]
        rows = [row for batch in batches for row in self.runtime.run(0, batch).probabilities]
        classes = self.variant.tasks[task].classes
        return pd.DataFrame(np.reshape(rows, (-1, len(classes))), columns=list(classes))


mlflow.models.set_model(TokensVariant())
