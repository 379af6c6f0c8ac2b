"""What an artifact of a kind needs in an MLflow client: the code that runs it, and the distributions that this imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import registry
from pliant.errors import ArtifactError
from registry.package import frame, needed, pyfunc_file

KINDS = [
    path.stem.replace("_", "-")
    for path in sorted(Path(registry.__file__).parent.glob("pyfunc/*.py"))
    if path.stem != "__init__"
]


@cache
def distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_a_kind_imports_nothing_that_is_not_required(kind):
    tree = ast.parse(pyfunc_file(kind).read_text())
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    foreign = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"pliant", "registry"}
    assert foreign
    for name in foreign:
        assert set(needed(kind)) & {distribution.lower() for distribution in distributions()[name]}, name


def test_the_distributions_are_named_once_and_sorted():
    for kind in (*KINDS, "rockets-engine"):
        assert list(needed(kind)) == sorted(set(needed(kind)))
    assert set(needed("rockets-engine")) < set(needed("tokens-task")) > {"timm", "torchvision"}
    assert needed("bins-plan") == needed("bins-encoder") != needed("tokens-task")


def test_a_kind_without_code_is_an_error_that_names_the_file():
    with pytest.raises(
        ArtifactError, match=r"no rockets_engine\.py says how an artifact of kind rockets-engine answers"
    ):
        pyfunc_file("rockets-engine")


def test_columns_are_a_data_frame_and_tensors_stay():
    columns = {"length": np.array([1, 2]), "text": np.array(["a", "b"])}
    assert isinstance(frame(columns), pd.DataFrame)
    assert frame(columns).to_dict("list") == {"length": [1, 2], "text": ["a", "b"]}
    tensor = np.zeros((1, 2))
    assert frame(tensor) is tensor
