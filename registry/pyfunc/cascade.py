"""Artifacts of cascade in an MLflow client: one level alone, and a cascade that fetches its levels from the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pliant.cascade import run
from pliant.cascade.artifact import Cascade
from pliant.cascade.runtime import CascadeRuntime
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.text import Reader
from pliant.registry import codec
from pliant.registry.pyfunc import Predictor, Values, fetched, labelled, pairs


class LevelLabels:
    """A data frame with `text` and, for a model of pairs, `text_pair` -> label and (uncalibrated) confidence a row."""

    def __init__(self, folder: Path, config: Values) -> None:
        self.classifier = codec.load(Classifier, folder)
        self.reader = Reader(self.classifier.tokenizer, self.classifier.max_length)
        self.runtime = CascadeRuntime({0: self.classifier}, config.get("device", "cpu"))

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:  # noqa: ARG002
        readings = [self.reader.read(*pair) for pair in pairs(frame)]
        runs = [self.runtime.run(0, [(reading.ids, reading.types)], False) for reading in readings]
        return labelled(self.classifier.classes, [np.asarray(run.logits[0]) for run in runs])


class CascadeAnswers:
    """A data frame with `text` and, for a task of pairs, `text_pair` -> label, calibrated confidence and answering level.

    `params={"candidate": "single"}` chooses the candidate, by default the first. Texts run one after the other, as
    pliant/cascade/run.py says. The levels' weights are not stored with it: `model_config["model.LEVEL"]` says where in the
    registry they are.
    """

    def __init__(self, folder: Path, config: Values) -> None:
        self.cascade = codec.load(Cascade, folder)
        owner = f"the cascade {self.cascade.task}"
        classifiers = [
            fetched(Classifier, config[f"model.{level.name}"], level.classifier, owner, "model", "planned")
            for level in self.cascade.levels
        ]
        self.models = run.load(self.cascade, classifiers, config.get("device", "cpu"))

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


KINDS: Mapping[str, type[Predictor]] = {Classifier.KIND: LevelLabels, Cascade.KIND: CascadeAnswers}
