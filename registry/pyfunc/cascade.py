"""Artifacts of cascade in an MLflow client: one level alone, and a cascade that fetches its levels from the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pliant.cascade import run
from pliant.cascade.artifact import KINDS as LEVELS
from pliant.cascade.artifact import Bag, Cascade, Exit
from pliant.cascade.bag import BagModel
from pliant.cascade.runtime import CascadeRuntime, Part
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.text import Reader
from pliant.registry import codec
from pliant.registry.pyfunc import Predictor, Values, fetched, labelled, pairs


class LevelLabels:
    """A data frame with `text` and, for a model of pairs, `text_pair` -> label and (uncalibrated) confidence a row.

    The classifier whose first layers an exit reads is not stored with it: `model_config["trunk"]` says where it is.
    """

    def __init__(self, folder: Path, config: Values) -> None:
        self.level = level = next(
            codec.load(each, folder) for each in LEVELS.values() if codec.kind(folder) == each.KIND
        )
        owner = f"the exit {level.name}"
        self.trunk = (
            fetched(Classifier, config["trunk"], level.large, owner, "model", "made")
            if isinstance(level, Exit)
            else level
        )
        self.reader = Reader(self.trunk.tokenizer, self.trunk.max_length)
        self.device = config.get("device", "cpu")

    @cached_property
    def logits(self) -> Callable[[NDArray[np.int32], NDArray[np.int8]], NDArray[np.float32]]:
        """What the level says of the tokens of one text."""
        if isinstance(self.trunk, Bag):
            return BagModel(self.trunk).logits
        part = Part(self.trunk, exit=self.level if isinstance(self.level, Exit) else None)
        runtime = CascadeRuntime({0: part}, self.device)
        return lambda ids_N, types_N: runtime.run(0, [(ids_N, types_N)]).logits[0]

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:  # noqa: ARG002
        readings = [self.reader.read(*pair) for pair in pairs(frame)]
        return labelled(self.level.classes, [self.logits(reading.ids, reading.types) for reading in readings])


class CascadeAnswers:
    """A data frame with `text` and, for a task of pairs, `text_pair` -> label, calibrated confidence and answering level.

    `params={"candidate": "single"}` chooses the candidate, by default the first. Texts run one after the other, as
    pliant/cascade/run.py says. The levels' weights are not stored with it: `model_config["model.LEVEL"]` says where in the
    registry they are.
    """

    def __init__(self, folder: Path, config: Values) -> None:
        self.cascade = codec.load(Cascade, folder)
        owner = f"the cascade {self.cascade.task}"
        levels = [
            fetched(LEVELS[level.kind], config[f"model.{level.name}"], level.classifier, owner, "model", "planned")
            for level in self.cascade.levels
        ]
        self.models = run.load(self.cascade, levels, config.get("device", "cpu"))

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:
        names = [candidate.name for candidate in self.cascade.candidates]
        name = params.get("candidate") or names[0]
        if name not in names:
            raise InputError("candidate", name, f"one of {', '.join(names)}")
        texts = pairs(frame, self.cascade.pair)
        draw_R = np.random.default_rng(int(params.get("seed", 0))).random(len(texts))
        answers = run.run(self.cascade, self.models, texts, names.index(name), draw_R)
        return pd.DataFrame(
            {
                "label": [answer.label for answer in answers],
                "confidence": [answer.confidence for answer in answers],
                "level": [self.cascade.levels[answer.level].name for answer in answers],
            }
        )


KINDS: Mapping[str, type[Predictor]] = {
    **{level.KIND: LevelLabels for level in LEVELS.values()},
    Cascade.KIND: CascadeAnswers,
}
