"""The controller reads no clock, draws no random number and touches no disk."""

from __future__ import annotations

import ast

from tests.architecture import IMPURE_MODULES, imports
from tests.fixtures.places import ROOT

ALLOWED = ("collections", "dataclasses", "hashlib", "itertools", "math", "pliant", "typing", "__future__")


def test_the_package_imports_nothing_that_could_make_it_impure():
    paths = sorted((ROOT / "pliant" / "rollout").glob("*.py"))
    modules = {module.split(".")[0] for path in paths for module in imports(ast.parse(path.read_text()))}
    assert len(paths) >= 7
    assert modules <= set(ALLOWED)
    assert not modules & set(IMPURE_MODULES)
