"""A cascade in any MLflow client: a data frame of texts -> label, calibrated confidence and answering level a row.

The frame has a column `text` and, for a task of pairs, `text_pair`. `predict(frame, params={"candidate": "single"})` chooses
the candidate; by default the first. Texts run one after the other, as pliant/cascade/run.py says. The classifiers' weights
are not stored with the cascade: they are fetched from the registry, `model_config["model.LEVEL"]` says where, and must have
the digests that the cascade was planned for.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from pliant.cascade import run
from pliant.cascade.artifact import Cascade, LevelProfile
from pliant.errors import BackboneError, DigestError, InputError, RegistryError
from pliant.models.artifact import Classifier
from registry import codec


class CascadeTask(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        config = context.model_config or {}
        self.cascade = codec.load(Cascade, Path(context.artifacts["bundle"]))
        classifiers = [_classifier(self.cascade, level, config) for level in self.cascade.levels]
        self.models = run.load(self.cascade, classifiers, config.get("device", "cpu"))

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        options = params or {}
        candidate = _candidate(self.cascade, options.get("candidate") or self.cascade.candidates[0].name)
        seconds = model_input["text_pair"] if self.cascade.pair else [None] * len(model_input)
        texts = list(zip(model_input["text"], seconds, strict=True))
        draw_R = np.random.default_rng(int(options.get("seed", 0))).random(len(texts))
        answers = run.run(self.cascade, self.models, texts, candidate, draw_R)
        return pd.DataFrame(
            {
                "label": [answer.label for answer in answers],
                "confidence": [answer.confidence for answer in answers],
                "level": [self.cascade.levels[answer.level].name for answer in answers],
            }
        )


def _candidate(cascade: Cascade, name: str) -> int:
    names = [candidate.name for candidate in cascade.candidates]
    if name not in names:
        raise InputError("candidate", name, f"one of {', '.join(names)}")
    return names.index(name)


def _classifier(cascade: Cascade, level: LevelProfile, config: dict[str, Any]) -> Classifier:
    """Return a level's classifier.

    Raises `BackboneError` for another model than the cascade's, `RegistryError` where it cannot be fetched.
    """
    uri = config[f"model.{level.name}"]
    try:
        folder = mlflow.artifacts.download_artifacts(f"{uri}/artifacts/bundle")
    except Exception as error:  # whatever the artifact store may raise
        raise RegistryError(
            f"the cascade {cascade.task} needs its model {uri}, which could not be fetched ({error}): "
            "set MLflow's tracking URI to the registry that holds it"
        ) from error
    try:
        return codec.load(Classifier, Path(folder), level.classifier)
    except DigestError as error:
        raise BackboneError(
            f"the cascade {cascade.task} was planned for another model than {uri}, or that one is damaged: {error}"
        ) from error


mlflow.models.set_model(CascadeTask())
