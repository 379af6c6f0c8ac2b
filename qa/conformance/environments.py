"""Virtual environments of clients, made with uv from the package index, each with its pins and nothing of Pliant.

They lie in a folder of the runner's, beside uv's cache. One is made anew when its pins or the Python change, and used
again otherwise.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from serving.packing.vllm import index
from serving.packing.vllm.packages import uv

NO_DEPENDENCIES = "--no-deps "
"""What a requirement begins with if it is installed alone."""
_DESCRIPTION = "pins.json"  # written last: an environment without it was never finished
_LIMIT_S = 1800.0
_REASON = 200  # characters


class NotInstalledError(Exception):
    """A client cannot be installed; the message says why."""


def requirements_of(script: Path) -> dict[str, tuple[str, ...]]:
    """Return the REQUIREMENTS of a client's script by client, without importing it. Raises `ValueError` if it has none."""
    for node in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "REQUIREMENTS":
            return dict(ast.literal_eval(node.value or ast.Dict([], [])))
    raise ValueError(f"{script} has no REQUIREMENTS")


def python_of(folder: Path, requirements: Sequence[str]) -> Path:
    """Return the Python of the environment in `folder`, made if it is not there. Raises `NotInstalledError`."""
    python = folder / "bin" / "python"
    description = json.dumps({"python": platform.python_version(), "requirements": list(requirements)})
    if (folder / _DESCRIPTION).is_file() and (folder / _DESCRIPTION).read_text() == description:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    cache = folder.parent / "cache"
    _uv(cache, "venv", "--no-project", "--python", sys.executable, str(folder))
    alone = [each.removeprefix(NO_DEPENDENCIES) for each in requirements if each.startswith(NO_DEPENDENCIES)]
    others = [each for each in requirements if not each.startswith(NO_DEPENDENCIES)]
    for options in ([*others], ["--no-deps", *alone]):
        if options[-1:] not in ([], ["--no-deps"]):
            _uv(cache, "pip", "install", "--python", str(python), *options)
    (folder / _DESCRIPTION).write_text(description)
    return python


def _uv(cache: Path, *arguments: str) -> None:
    settings = index.uv_variables(index.pip_settings())
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    variables |= {**settings, "UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never"}
    variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    if "UV_FIND_LINKS" not in variables:
        variables.setdefault("UV_TORCH_BACKEND", "cpu")  # else torch comes with gigabytes of CUDA
    try:
        command = [str(uv()), *arguments]
        output = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"uv made no end within {_LIMIT_S:g} s") from None
    if output.returncode != 0:
        lines = index.without_addresses(output.stderr, variables).split("\n")
        said = [line.strip() for line in lines if line.strip().startswith(("error:", "cause:", "╰─▶", "Because", "×"))]
        raise NotInstalledError((" ".join(said) or f"uv ended with status {output.returncode}")[:_REASON])
