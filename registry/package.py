"""A package, which the registry publishes, and the published version that it returns. Knows no MLflow."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import pliant.errors
from pliant import systems
from pliant.errors import ArtifactError

Example = NDArray[Any] | Mapping[str, NDArray[Any]]
"""Tensors with the batch in front, or named columns (which an MLflow client gives and gets as a data frame)."""

Option = int | float | str | bool

BUNDLE = "bundle"
"""Name of an artifact's folder within a published model."""

METRICS = "pliant.metrics"
"""Tag of a version: the metrics that it was published with, as JSON, the first ones where there are many."""
METRICS_KEPT = 40

LINKED = ("benchmarks", "cli", "flows", "profiling", "registry", "serving", "training")
"""Packages of `pliant` that lie beside it in a checkout, with a link in it."""

NEEDED = ("cattrs", "mlflow", "numpy", "pandas", "safetensors", "torch")
"""Distributions that every model's code imports."""


@dataclass(frozen=True, slots=True)
class Package:
    """An artifact's folder and all that is published with it.

    How it answers in an MLflow client is said in registry/pyfunc/<system>.py, by the kind in the folder.
    """

    name: str  # of the registered model, such as "pliant-tokens-profile"
    folder: Path
    inputs: Example  # what `predict` takes, and ...
    outputs: Example  # ... gives; the types and shapes count, not the values
    options: Mapping[str, Option] = field(default_factory=dict)  # `params` of `predict`, with their defaults
    config: Mapping[str, Option] = field(default_factory=dict)  # `model_config` of `load_model`, with its defaults
    params: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, object] = field(default_factory=dict)  # of the version: pliant.data, pliant.git_commit, ...
    card: str = ""  # what each mechanism in it earned, in Markdown: part of the version's description


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a registered model."""

    name: str
    version: int
    digest: str  # of the artifact, from the version's tag
    uri: str
    tags: Mapping[str, str]
    created: str = field(default="", compare=False)  # ISO 8601, UTC


def frame(example: Example) -> Any:
    """Return named columns as a data frame, tensors as they are."""
    import pandas as pd

    return pd.DataFrame(dict(example)) if isinstance(example, Mapping) else example


def needed(kind: str) -> tuple[str, ...]:
    """Return the distributions that an artifact of `kind` needs in an MLflow client, sorted."""
    own = {system.name: system.requires for system in systems.listed()}.get(kind.partition("-")[0], ())
    return tuple(sorted({*NEEDED, *own}))


def copy_code(folder: Path, *packages: str) -> Path:
    """Copy `pliant` without its command into `folder`, of its linked packages `packages` alone; return where it lies."""
    source, apart = Path(pliant.errors.__file__).parent, {"__main__.py", *LINKED}.difference(packages)

    def left_out(place: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or (name in apart and Path(place) == source)}

    return Path(shutil.copytree(source, folder / source.name, ignore=left_out))


def pyfunc_file(kind: str) -> Path:
    """Return the file that MLflow runs. Raises `ArtifactError` where nothing says how artifacts of `kind` answer."""
    module = systems.pyfunc(kind)
    if find_spec(module) is None:
        raise ArtifactError(f"no module {module} says how an artifact of kind {kind} answers in an MLflow client")
    return Path(__file__).parent / "pyfunc" / "model.py"
