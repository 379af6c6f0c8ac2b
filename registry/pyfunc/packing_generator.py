"""A generator in any MLflow client: a data frame of prompts -> greedy completions.

The frame has a column `text`, the prompt as the model is asked (with its chat template already applied);
`predict(frame, params={"max_tokens": 16})` bounds the completions. Columns that come back: `completion`, `tokens` of it,
and `finished`: "stop" where the model ended by itself, else "length".

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.complete import Completion, complete
from pliant.packing.engine.model import in_precision, tokenizer_of
from pliant.packing.scheduling.request import Memory
from pliant.precision import usable_precision
from registry import codec

PAGE_TOKENS = 16
SEQUENCES = 8  # at a time


class PackingGenerator(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.device = str((context.model_config or {}).get("device", "cpu"))
        generator = codec.load(Generator, Path(context.artifacts["bundle"]))
        self.generator = in_precision(generator, usable_precision(generator.precision, self.device))
        self.tokenizer = tokenizer_of(self.generator.tokenizer)

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        limit = int((params or {}).get("max_tokens", 64))
        if limit < 1:
            raise InputError("max_tokens", limit, "at least 1")
        prompts = [tuple(self.tokenizer.encode(text).ids) for text in model_input["text"]]
        pages = SEQUENCES * -(-self.generator.context // PAGE_TOKENS)
        completions = complete(self.generator, prompts, Memory(pages, PAGE_TOKENS), limit, device=self.device)
        rows = [self._row(completion) for completion in completions]
        return pd.DataFrame(rows, columns=["completion", "tokens", "finished"])

    def _row(self, completion: Completion) -> tuple[str, int, str]:
        text_tokens = completion.tokens[:-1] if completion.finished == "stop" else completion.tokens
        return self.tokenizer.decode(list(text_tokens)), len(completion.tokens), completion.finished


mlflow.models.set_model(PackingGenerator())
