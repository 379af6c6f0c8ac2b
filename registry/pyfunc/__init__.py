"""How artifacts answer in an MLflow client: model.py is what MLflow runs; a file a system says what each kind answers.

MLflow runs it in the client's process and beside copies of `pliant` and `registry`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import mlflow
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pliant.errors import BackboneError, DigestError, RegistryError
from pliant.registry import codec
from pliant.registry.codec import Artifact

T = TypeVar("T", bound=Artifact)
Values = Mapping[str, Any]


class Predictor(Protocol):
    """What answers for one artifact. It is made of its folder and of `model_config`."""

    def __init__(self, folder: Path, config: Values) -> None: ...
    def predict(self, model_input: Any, params: Values) -> Any: ...


def fetched(cls: type[T], uri: str, digest: str, owner: str, part: str, verb: str) -> T:
    """Return the artifact of another registered model that `owner` was made for.

    `part` and `verb` are words of the messages. Raises `RegistryError` where it cannot be fetched, `BackboneError` for
    another artifact than that of the digest.
    """
    try:
        folder = mlflow.artifacts.download_artifacts(f"{uri}/artifacts/bundle")
    except Exception as error:  # whatever the artifact store may raise
        raise RegistryError(
            f"{owner} needs its {part} {uri}, which could not be fetched ({error}): "
            "set MLflow's tracking URI to the registry that holds it"
        ) from error
    try:
        return codec.load(cls, Path(folder), digest)
    except DigestError as error:
        raise BackboneError(
            f"{owner} was {verb} for another {part} than {uri}, or that one is damaged: {error}"
        ) from error


def pairs(frame: pd.DataFrame, pair: bool = True) -> list[tuple[str, str | None]]:
    """Return the columns `text` and, where there is one and `pair` says so, `text_pair`."""
    seconds = frame["text_pair"] if pair and "text_pair" in frame else [None] * len(frame)
    return list(zip(frame["text"], seconds, strict=True))


def labelled(classes: Sequence[str], logits: Sequence[NDArray[Any]]) -> pd.DataFrame:
    """Return label and (uncalibrated) confidence a row; without classes a regressor's value as the label."""
    if not classes:
        return pd.DataFrame({"label": [float(row[0]) for row in logits]})
    confidences = [1 / float(np.exp(row.astype(np.float64) - row.max()).sum()) for row in logits]
    return pd.DataFrame({"label": [classes[int(row.argmax())] for row in logits], "confidence": confidences})
