"""Installs the packages of vLLM with uv, and says in one sentence why that failed."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pliant.errors import OfflineError, PliantError
from pliant.progress import Progress
from serving.packing.vllm import engine, index, process
from serving.packing.vllm.places import Places, disk_error, size

Stage = Callable[[str], AbstractContextManager[Progress]]
Say = Callable[[str], None]

DOWNLOADED = {"cpu": 0.8e9, "cuda": 2.6e9}  # bytes, as measured on Linux x86-64 with the pins of pins_DEVICE.txt
INSTALLED = {"cpu": 3.3e9, "cuda": 8.0e9}
_LIMIT_S = 4 * 3600.0  # after which an installation hangs
_FILES_LIMIT_S = 120.0


def uv() -> Path:
    """Return the installer uv, which comes with Pliant's packages."""
    beside = Path(sysconfig.get_path("scripts")) / "uv"
    path = str(beside) if beside.is_file() else shutil.which("uv")
    if path is None:
        raise PliantError("the installer uv is missing; it comes with: pip install --constraint constraints.txt -e .")
    return Path(path)


def install_packages(places: Places, device: str, base: Path, settings: dict[str, str], stage: Stage, say: Say) -> None:
    tool, python = uv(), engine.interpreter(places.new)
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    variables |= {**settings, "UV_CACHE_DIR": str(places.downloads), "UV_PYTHON_DOWNLOADS": "never"}
    variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    making: list[str | Path] = [tool, "venv", "--no-project", "--relocatable", "--python", base, places.new]
    installing: list[str | Path] = [tool, "pip", "install", "--python", python, "--constraint", engine.pins(device)]
    installing += ["--override", engine.LEFT_OUT, engine.REQUIREMENTS[device]]
    output = process.run(making, variables, _FILES_LIMIT_S, folder=places.engines, inherited=(places.lock,))
    if output.status != 0:
        raise _uv_error(output, places, variables, device)
    with stage("downloading vLLM") as progress:

        def tick() -> None:
            progress(min(size(places.downloads), int(0.99 * INSTALLED[device])), int(INSTALLED[device]))

        output = process.run(installing, variables, _LIMIT_S, tick, folder=places.engines, inherited=(places.lock,))
        if output.status != 0 and device == "cpu" and _lacks_torch(output.text):
            say("the package index has no build of torch for CPUs that fits: looking in PyTorch's own index")
            variables["UV_TORCH_BACKEND"] = "cpu"
            output = process.run(installing, variables, _LIMIT_S, tick, folder=places.engines, inherited=(places.lock,))
        if output.status != 0:
            raise _uv_error(output, places, variables, device)


def _lacks_torch(text: str) -> bool:
    return "No solution found" in text and re.search(r"\btorch(\{[^}]*\})?==\S+\+cpu\b", text) is not None


def _uv_error(output: process.Output, places: Places, variables: dict[str, str], device: str) -> PliantError:
    """Return why uv failed, in a sentence; what it printed is kept, without addresses."""
    text = index.without_addresses(output.text, variables)
    with suppress(OSError):
        places.log.write_text(text)
    if output.hung:
        return PliantError("the installer made no end within hours and was stopped; the same command goes on")
    if re.search(r"No space left on device|os error 28|Disk quota exceeded", text):
        return disk_error(OSError(errno.ENOSPC, ""), places.engines)
    if re.search(r"Permission denied|os error 13", text):
        return PliantError(f"a file in {places.engines} may not be written by this user (log: {places.log})")
    if re.search(
        r"Failed to fetch|error sending request|dns error|Request failed|[Tt]imed out|os error 11[01]\b", text
    ):
        what = "PyTorch's package index" if "UV_TORCH_BACKEND" in variables else "the package index"
        reason = _first(r"40[137] \w+|dns error|Connection refused|timed out", text)
        return OfflineError(
            f"{what} could not be read{f' ({reason})' if reason else ''}; once it can, the same command goes on from "
            "what is there. Pliant's own engine, `pliant serve packing` without vLLM, works without it"
        )
    if re.search(r"(Python|ABI|platform) (ABI |version )?tag|does not satisfy Python", text):
        return PliantError(
            f"the package index has no builds of {engine.REQUIREMENTS[device]} and what it needs for this Python and "
            f"processor; name another Python with --python, such as python3.11 (log: {places.log})"
        )
    if "No solution found" in text:
        lacking = _first(r"there is no version of [^\s{]+|[^\s{]+ was not found in the package registry", text)
        return PliantError(
            f"the package index lacks something that vLLM needs{f': {lacking}' if lacking else ''} (log: {places.log})"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "cause:"))]
    last = (errors or lines or ["no word from it"])[-1].removeprefix("error:").removeprefix("cause:").strip()
    return PliantError(f"uv could not install vLLM: {last[:300]} (log: {places.log})")


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match.group() if match else ""
