"""The real packing flow, killed (SIGKILL) at every stage in turn and run again, ends the same; nothing is half published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_switch import aliases, history
from tests.fixtures.packing.tiny import setting, write_generator, write_prompts
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE, place_in, versions

NAMES = tuple(f"pliant-packing-{part}things" for part in ("generator-", "predictor-", ""))
STAGES = ("things: generator", "things: lengths", "things: predictor", "things: step profile", "things: plan")
ALWAYS = ("things: gate", "publish")

pytestmark = pytest.mark.slow

RUN = """
import json, os, signal, sys

class Errors:
    def write(self, text):
        for line in text.splitlines():
            if line.endswith(": started") and (name := line.removesuffix(": started")) not in passed:
                print(json.dumps(name), flush=True)
                if name != "texts":
                    os.kill(os.getpid(), signal.SIGKILL)
        return len(text)

    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)

setting, passed = json.loads(sys.argv[1]), json.loads(sys.argv[2])
if passed is not None:
    sys.stderr = Errors()
from pliant.flows import settings
settings.prepare(settings.read())
from pliant.flows.run import run_connected
print(json.dumps(run_connected('packing', None, setting)), flush=True)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory, prefect) -> Iterator[Path]:
    """A working directory with prompts, state and registry of its own."""
    folder = tmp_path_factory.mktemp("killed-flow")
    write_prompts(folder)
    write_generator(folder)
    with place_in(folder, prefect):
        yield folder


def run(place: Path, passed: tuple[str, ...] | None, **changes) -> dict | str:
    """Run the flow in a process of its own that is killed where a stage begins that is none of `passed`; None: never.

    Returns what it released, or the stage.
    """
    words = [json.dumps(setting(place, **changes)), json.dumps(passed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(place / "prefect")}
    command = [sys.executable, "-c", RUN, *words]
    child = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return json.loads(child.stdout.splitlines()[-1])


def run_to_the_end(place: Path, **changes) -> tuple[list[str], dict]:
    """Run the flow, each time until a stage that was not reached before; return these stages, and what it released."""
    passed: list[str] = ["texts"]
    while isinstance(ended := run(place, tuple(passed), **changes), str):
        before = open_registry(settings.read(), "packing")
        served = before.release("packing") if before.exists() else None
        assert served is None or dict(served.versions) == dict.fromkeys(NAMES, 1), "the champion is served as before"
        passed.append(ended)
    return passed[1:], ended


def test_a_flow_killed_at_every_stage_in_turn_ends_the_same_and_nothing_is_half_published(place, monkeypatch):
    stages, released = run_to_the_end(place)
    assert stages == [*STAGES, *ALWAYS]
    assert released["promoted"], released["reason"]
    assert released["versions"] == versions("packing") == dict.fromkeys(NAMES, 1)
    registry = open_registry(settings.read(), "packing")
    assert [release.number for release in history(registry, "packing")] == [1]

    monkeypatch.setenv("PLIANT_ROLLOUT", "canary")
    stages, proposed = run_to_the_end(place, memory={**setting(place)["memory"], "pages": 32})
    assert stages == ["things: step profile", "things: plan", *ALWAYS]
    assert proposed["new"] == [NAMES[2]] and versions("packing") == dict.fromkeys(NAMES, 1)
    waiting, served = history(registry, "packing")
    assert (waiting.state, waiting.former, served.number) == ("waiting", 1, 1)
    assert waiting.versions == {**served.versions, NAMES[2]: 2}
    assert aliases(registry, "packing") == {"champion": 1, "challenger": 2}

    again = run(place, None, memory={**setting(place)["memory"], "pages": 32})
    assert again["versions"] == proposed["versions"] and len(history(registry, "packing")) == 2, "it is made but once"
