"""What an artifact of a kind needs in an MLflow client: the code that runs it, and the distributions that this imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import pliant.registry
from pliant import systems
from pliant.registry import names
from pliant.registry.package import needed, pyfunc_file
from tests.architecture import imports

SYSTEMS = systems.names()

FOLDER = Path(pliant.registry.__file__).parent / "pyfunc"
KINDS = ["tokens-task", "bins-plan", "cascade-task", "packing-plan"]


@cache
def distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_a_kind_imports_nothing_that_is_not_required(kind):
    files = (pyfunc_file(kind), FOLDER / "__init__.py", FOLDER / f"{kind.partition('-')[0]}.py")
    modules = [module for file in files for module in imports(ast.parse(file.read_text()))]
    foreign = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"pliant", "registry"}
    assert foreign
    for name in foreign:
        assert set(needed(kind)) & {distribution.lower() for distribution in distributions()[name]}, name


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_manages_models_is_no_model_of_a_system(system):
    for name in (names.release(system), names.lock(system) + "1", names.experiment(system)):
        assert names.system_of(name) is None
    assert len({names.release(system), names.lock(system), names.experiment(system), names.prefix(system)}) == 4
