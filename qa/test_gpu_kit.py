"""The whole acceptance kit on the CPU, in tiny sizes, without the packages that a bare GPU machine lacks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pliant.benchmarks.gpu.__main__ import LIMITS, MEASURED
from pliant.benchmarks.results import read
from tests.fixtures.places import ROOT

ABSENT = (
    "aiosqlite", "bentoml", "datasets", "fastapi", "httptools", "matplotlib", "mlflow", "openai", "orjson", "prefect",
    "pydantic", "ray", "rich", "schemathesis", "sqlalchemy", "starlette", "uvicorn",
)  # fmt: skip
SITE = f"""
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {ABSENT!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
"""
RIGHT = ("fail", "pass", "differ", "accuracy")
"""Words in the names of targets that do not depend on how fast this machine is."""


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """Return the kit's exit status, its output and its file."""
    folder = tmp_path_factory.mktemp("kit")
    (folder / "sitecustomize.py").write_text(SITE)
    command = [sys.executable, "-m", "pliant.benchmarks.gpu", "--device", "cpu", "--tiny", "--out", folder / "gpu.json"]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr, read(folder / "gpu.json")


@pytest.mark.slow
def test_every_stage_is_measured_to_its_end_and_is_right(kit):
    status, output, content = kit
    assert [(stage, content["stages"][stage]["outcome"]) for stage in content["stages"]] == [
        (stage, MEASURED) for stage in LIMITS
    ], output
    wrong = [
        row["name"]
        for row in content["targets"]
        if row["verdict"] != "met" and any(word in row["name"] for word in RIGHT)
    ]
    assert not wrong, output
    assert status in (0, 1), output
