"""One name for one thing: names that were given up do not come back, and names that say nothing are not used."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.architecture import OURS, TESTING
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
    "Batching": "ContinuousBatching",
    "asker": "client",
    "Way": "Handler",
    "Found": "what it holds",
    "Asked": "the request's type, such as TextRequest",
    "Looked": "EngineReport",
    "Fleet": "PoolState",
    "Learnt": "RetrainResults",
    "lane": "slot",
    "fleet": "pool",
    "become": "promote",
}
"""Name -> the one that is used instead."""

EMPTY = ("told", "found", "made", "one", "asked")
"""Names that say how a thing came to be, or nothing: in the product and the benchmarks a thing is called what it is."""


def bound(tree: ast.AST) -> Counter[str]:
    """Return how often each name is bound: assigned, or as a parameter, a function, a class or an import's alias."""
    names: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.alias(asname=str(name)):
                names[name] += 1
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] += 1
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names[name] += 1
    return names


@cache
def all_bound(tests: bool) -> Counter[str]:
    """Over all files of ours; with `tests`, those of tests and of qa, too."""
    paths = [path for folder in OURS if tests or folder not in TESTING for path in (ROOT / folder).rglob("*.py")]
    return sum((bound(ast.parse(path.read_text(encoding="utf-8"))) for path in paths), Counter())


@pytest.mark.parametrize("name", GIVEN_UP)
def test_a_name_that_was_given_up_does_not_come_back(name):
    assert all_bound(tests=True)[name] == 0, f"say {GIVEN_UP[name]}"


@pytest.mark.parametrize("name", EMPTY)
def test_a_name_that_says_nothing_is_not_used(name):
    assert all_bound(tests=False)[name] == 0, f"{name} says how a thing came to be, not what it is"


def test_a_binding_is_found_wherever_it_stands():
    source = "import x as told\ndef hire(asker):\n    with Lane as told: print(told := 1)\nclass Bar: ..."
    assert bound(ast.parse(source)) == Counter(told=3, hire=1, asker=1, Bar=1)
