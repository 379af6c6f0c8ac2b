"""The real packing flow, killed (SIGKILL) amid its work and run again, ends the same; nothing is half published."""

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
from pliant.registry.mlflow_switch import history
from tests.fixtures.packing.tiny import setting, write_generator, write_prompts
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE, place_in, versions

NAMES = tuple(f"pliant-packing-{part}things" for part in ("generator-", "predictor-", ""))
pytestmark = pytest.mark.slow

RUN = """
import json, os, signal, sys

class Errors:
    def write(self, text):
        for line in text.splitlines():
            if line.endswith(": started"):
                print(line.removesuffix(": started"), flush=True)
                if line == f"{killed}: started":
                    os.kill(os.getpid(), signal.SIGKILL)
        return len(text)

    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)

setting, killed = json.loads(sys.argv[1]), sys.argv[2]
sys.stderr = Errors()
from pliant.flows import settings
settings.prepare()
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


def run(place: Path, killed: str = "") -> tuple[list[str], dict | None]:
    """Run the flow in a process of its own, which is killed where the stage `killed` begins.

    Returns the stages that began, and what it released; None where it was killed.
    """
    words = [json.dumps(setting(place)), killed]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(place / "prefect")}
    command = [sys.executable, "-c", RUN, *words]
    child = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    lines = child.stdout.splitlines()
    assert child.returncode == (-signal.SIGKILL if killed else 0), child.stderr
    return (lines, None) if killed else (lines[:-1], json.loads(lines[-1]))


def test_a_flow_killed_amid_its_work_ends_the_same_and_nothing_is_half_published(place):
    """Killed before it publishes; qa/flows/test_publishers.py kills a publisher before each of its writes."""
    begun, _ = run(place, killed="publish")
    assert {"things: generator", "things: lengths", "things: plan", "things: gate"} <= {*begun}
    registry = open_registry(settings.read(), "packing")
    assert not registry.exists() or registry.release("packing") is None
    begun, released = run(place)
    assert "things: plan" not in begun, "what was made is kept"
    assert released["promoted"], released["reason"]
    assert released["versions"] == versions("packing") == dict.fromkeys(NAMES, 1)
    assert [release.number for release in history(registry, "packing")] == [1]
