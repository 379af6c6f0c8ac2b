"""Artifacts of bins in an MLflow client. Encoders run in plain torch: compiled runtimes belong to one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from pliant.models.text import Reader
from pliant.registry import codec
from pliant.registry.pyfunc import Predictor, Values, labelled, pairs


class EncoderOutputs:
    """A data frame with `text` and, for a model of pairs, `text_pair` -> labels and confidences, or embeddings [N, D]."""

    def __init__(self, folder: Path, config: Values) -> None:
        self.encoder = codec.load(Encoder, folder)
        self.reader = Reader(self.encoder.tokenizer, self.encoder.max_length)
        dynamic = Shape(self.encoder.max_length, 1, True)
        self.runtime = BinsRuntime(self.encoder, [dynamic], "eager", None, {}, config.get("device", "cpu"))

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame | NDArray[np.float32]:  # noqa: ARG002
        readings = [self.reader.read(*pair) for pair in pairs(frame)]
        outputs = [self.runtime.run(0, [(reading.ids, reading.types)]).outputs[0] for reading in readings]
        if self.encoder.head == "embedding":
            return np.stack(outputs).astype(np.float32)
        return labelled(self.encoder.classes, outputs)


class FastestRuntime:
    """A data frame of (length, batch) -> the runtime that is fastest for them, what it pads to, and its seconds.

    `length` is that of the longest text in tokens, `batch` the number of texts, seconds those of the profiled device.
    """

    def __init__(self, folder: Path, config: Values) -> None:  # noqa: ARG002
        self.bins = codec.load(Bins, folder)

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:  # noqa: ARG002
        rows = zip(frame["length"], frame["batch"], strict=True)
        answers = [self._fastest(int(length), int(batch)) for length, batch in rows]
        return pd.DataFrame(answers, columns=["seconds", "padded_length", "padded_batch", "runtime"])

    def _fastest(self, length: int, batch: int) -> tuple[float, int, int, str]:
        bins, largest = self.bins, self.bins.shapes[-1]
        if not (1 <= length <= largest.length and 1 <= batch <= largest.batch):
            raise InputError("texts", f"{batch} of {length} tokens", f"1 to {largest.batch} of 1 to {largest.length}")
        return min(
            (bins.dynamic.between(length, batch), length, batch, "dynamic")
            if shape.dynamic
            else (bins.seconds[index], shape.length, shape.batch, "static")
            for index, shape in enumerate(bins.shapes)
            if length <= shape.length and batch <= shape.batch
        )


KINDS: Mapping[str, type[Predictor]] = {Encoder.KIND: EncoderOutputs, Bins.KIND: FastestRuntime}
