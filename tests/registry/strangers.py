"""A stranger: a process with MLflow and torch, but without our packages, that loads what was published. Knows no system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from registry.mlflow_store import MlflowRegistry

OPENING = """
import json, sys
sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "_EditableFinder"]
import importlib.util
from importlib.machinery import PathFinder

class Lacking:  # says that they are not there, as torch and transformers ask
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.split(".")[0] in sys.argv[3:] else PathFinder.find_spec(name, path, target)

assert importlib.util.find_spec("pliant") is None, "the stranger must not have our packages"
import mlflow, numpy as np, pandas as pd, torch
sys.meta_path[:] = [Lacking if finder is PathFinder else finder for finder in sys.meta_path]
torch.set_num_threads(1)
mlflow.set_tracking_uri(sys.argv[1])
"""
CLOSING = """
import pliant
print(json.dumps(told | {"pliant": pliant.__file__}))
"""


def ask(program: str, address: str, asked: Path, *lacking: str) -> dict[str, Any]:
    """What the stranger has `told` in the end, and where it found our code.

    `program` reads the file `asked` (sys.argv[2]); the packages `lacking` are not there once MLflow is imported.
    """
    command = [sys.executable, "-I", "-c", OPENING + program + CLOSING, address, str(asked), *lacking]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment(), timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def environment() -> dict[str, str]:
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "OMP_NUM_THREADS": "1"}
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | quiet


def required(registry: MlflowRegistry, model: str) -> set[str]:
    """The packages that its champion asks for."""
    folder, _ = registry.fetch(model)
    return {line.partition("==")[0] for line in (folder.parents[1] / "requirements.txt").read_text().split()}
