"""One name for one thing: names that were given up do not come back, and those that say nothing become fewer."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.architecture import OURS
from tests.fixtures.places import ROOT

GIVEN_UP = {
    "Packer": "PackingScheduler",
    "Refusal": "ApiError",
    "Flight": "InFlightOutput",
    "Lane": "WorkerSlot",
    "Hire": "WorkerFactory",
    "hire": "worker_factory",
    "Watch": "Poller",
    "Teller": "ProgressReporter",
    "Ran": "LaunchResult",
    "Decided": "Dispatched",
    "Parts": "Dependencies",
    "Made": "StageResult",
    "Bar": "Target",
    "Host": "SwapSpace",
    "Batching": "ContinuousBatchingEngine",
    "asker": "client",
}
"""Name -> the one that is used instead."""

MOST = {"told": 265, "found": 249, "made": 181, "one": 441, "asked": 60}
"""How often such a name may still be bound in the product and the benchmarks: lower it where there are fewer."""


def bound(tree: ast.AST) -> Counter[str]:
    """How often each name is bound: assigned, a parameter, a function, a class, a loop's variable."""
    names: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names[name] += 1
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] += 1
    return names


@cache
def all_bound(tests: bool) -> Counter[str]:
    """Over all files of ours; with `tests`, theirs too."""
    paths = [path for folder in OURS if tests or folder != "tests" for path in (ROOT / folder).rglob("*.py")]
    return sum((bound(ast.parse(path.read_text(encoding="utf-8"))) for path in paths), Counter())


@pytest.mark.parametrize("name", GIVEN_UP)
def test_a_name_that_was_given_up_does_not_come_back(name):
    assert all_bound(tests=True)[name] == 0, f"say {GIVEN_UP[name]}"


@pytest.mark.parametrize("name", MOST)
def test_a_name_that_says_nothing_becomes_rarer(name):
    assert all_bound(tests=False)[name] <= MOST[name], f"{name} says how a thing came to be, not what it is"


def test_every_kind_of_binding_is_found():
    source = "def hire(asker, /, *, told=1):\n    Lane = [found for found in told]\nclass Bar: ..."
    assert bound(ast.parse(source)) == Counter(hire=1, asker=1, told=1, Lane=1, found=1, Bar=1)
