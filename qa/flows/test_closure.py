"""What is found without running code, beside what an interpreter loads and what a stage really executes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pliant.flows import closure
from pliant.flows import stage as stages_of
from pliant.flows.closure import ROOT, is_apart
from pliant.flows.stage import StageResult
from pliant.registry.store import FolderStore
from tests.flows.stages import SYSTEMS

LOAD = """
import importlib, json, os, sys
import numpy, onnxruntime, scipy.stats, timm, torch, torchvision, transformers
tops, closures = json.load(sys.stdin)
for names in closures:
    reading, writing = os.pipe()
    if not os.fork():
        os.close(reading)
        for name in names:
            importlib.import_module(name)
        loaded = [name for name in sys.modules if name.partition(".")[0] in tops]
        with os.fdopen(writing, "w") as pipe:
            json.dump(loaded, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        print(pipe.read())
"""
"""Imports the modules of each closure in a process that has loaded nothing of ours; prints what that loads."""


def test_a_closure_holds_all_of_ours_that_importing_its_modules_loads(made):
    names = {stage: {name for name in found if ":" not in name} for stage, (found, _) in made.items()}
    given = json.dumps([["pliant"], [sorted(each) for each in names.values()]])
    done = subprocess.run(
        [sys.executable, "-c", LOAD], input=given, text=True, capture_output=True, cwd=ROOT, check=True
    )
    loaded = [set(json.loads(line)) for line in done.stdout.splitlines()]
    for (stage, each), found in zip(names.items(), loaded, strict=True):
        assert each <= found, stage
        assert {name for name in found - each if not is_apart(name)} == set(), stage


def test_all_of_ours_that_a_stage_executes_is_in_its_closure(made):
    missed = {stage: {name for name in ran - names if not is_apart(name)} for stage, (names, ran) in made.items()}
    assert {stage: names for stage, names in missed.items() if names} == {}
    assert [stage for stage, (names, ran) in made.items() if not ran & names] == []


def test_of_a_flows_module_that_counts_which_is_reached_and_of_others_all(made):
    names, _ = made["cascade/plan-things"]
    assert {
        "pliant.flows.cascade.stages:make_plan",
        "pliant.flows.cascade.stages:planned",
        "pliant.cascade.search",
    } <= names
    assert (
        not {"pliant.flows.cascade.stages", "pliant.flows.cascade.stages:make_level", "pliant.cascade.runtime"} & names
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, tuple[set[str], set[str]]]:
    """Of every stage of every system, run with tiny settings: the names of its closure, and those that it executed."""
    found: dict[str, tuple[set[str], set[str]]] = {}

    def run(stage, *args):
        names: set[str] = set()

        def follow(*made_by: Callable[..., object]) -> dict[str, str]:
            code = closure.closure(*made_by)
            names.update(code)
            return code

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(stages_of, "closure", follow)
            key = stage.key(*args)
        executed: set[str] = set()
        result = traced(lambda: stage.work(store, key, *args), executed)
        found[key.rpartition("/")[0]] = names, executed
        return result

    for system, all_of in SYSTEMS.items():
        folder = tmp_path_factory.mktemp(system)
        store = FolderStore(folder / "store")
        all_of(folder, run)
    return found


def traced(make: Callable[[], StageResult], executed: set[str]) -> StageResult:
    """What `make` returns; adds what of ours is called meanwhile, by any thread that it starts, by names as in closures."""
    seen = set[object]()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] == "pliant" and code.co_filename.startswith(str(ROOT)):
            item = code.co_qualname.partition(".")[0]
            executed.add(f"{module}:{item}" if module.startswith("pliant.flows.") and item != "<module>" else module)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return make()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
