"""Compiled files on disk: where they lie, whether they are the ones that were vouched for, and how new ones arrive whole.

They are native code or drive it, so a file is loaded only where its SHA-256 is the one in the registered artifact. Knows
no engine.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pliant.errors import ArtifactError, DeviceError, DigestError

MADE = "made.json"  # by which versions, on which processor: beside the compiled files, and digested with them
PARTIAL = ".partial-"
ABANDONED = 86_400.0  # seconds after which a partial folder is a dead process's
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "onnx": ("onnxruntime", "torch", "transformers"),
    "aot": ("torch", "transformers"),
    "graphs": ("torch", "transformers"),
    "eager": ("torch", "transformers"),
}
AGAIN = "`pliant profile bins` compiles again"


def cache_folder(home: Path, encoder_digest: str, device_class: str) -> Path:
    """Where the compiled files of an encoder for a class of device lie."""
    slug = re.sub(r"[^a-z0-9]+", "-", device_class.lower()).strip("-")
    return home / "compiled" / encoder_digest[:16] / slug


def versions(engine: str) -> dict[str, str]:
    """What compiled files depend on: packages, and the processor, whose instructions and memory layouts are compiled in."""
    return {name: _version(name) for name in PACKAGES[engine]} | {"processor": _processor()}


def verify(folder: Path, files: Mapping[str, str]) -> None:
    """All files are there and unaltered: `ArtifactError` for one that is missing, `DigestError` for one that differs."""
    for name, expected in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ArtifactError(f"{name} is not a file of the cache folder {folder}")
        if not path.is_file():
            raise ArtifactError(f"the compiled file {name} is missing in {folder}; {AGAIN}")
        if (found := sha256(path)) != expected:
            raise DigestError(str(path), expected, found)


def check_made(folder: Path, files: Mapping[str, str], engine: str) -> Path:
    """The folder of verified files, which were compiled by these versions for this processor: `DeviceError` otherwise."""
    [made] = [name for name in files if name.endswith(f"/{MADE}")] or [""]
    if not made:
        raise ArtifactError(f"{MADE} is not among the compiled files; {AGAIN}")
    then, here = json.loads((folder / made).read_text()), versions(engine)
    for name in here:
        if then.get(name) != here[name]:
            raise DeviceError(f"compiled with {name} {then.get(name)}, but here is {here[name]}; {AGAIN}")
    return (folder / made).parent


def store(folder: Path, engine: str, write: Callable[[Path], None]) -> dict[str, str]:
    """Have `write` fill a folder, and put it into `folder` under a name made from its content: all of it or nothing.

    Returns file -> SHA-256, relative to `folder`. Former files stay: other versions of the artifact vouch for them.
    Raises `ArtifactError` where the disk is full or may not be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder))
        try:
            write(partial)
            (partial / MADE).write_text(json.dumps(versions(engine), indent=1, sort_keys=True) + "\n")
            return _settle(partial, folder, engine)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise ArtifactError(f"the compiled files could not be written to {folder}: {error.strerror}") from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _settle(partial: Path, folder: Path, engine: str) -> dict[str, str]:
    digests = {path.name: sha256(path) for path in sorted(partial.iterdir())}
    name = f"{engine}-{hashlib.sha256(repr(digests).encode()).hexdigest()[:16]}"
    files = {f"{name}/{file}": digest for file, digest in digests.items()}
    try:
        verify(folder, files)
    except ArtifactError:  # the usual case: it is not there; or it was damaged
        shutil.rmtree(folder / name, ignore_errors=True)
        partial.rename(folder / name)
    return files


def _sweep(folder: Path) -> None:
    """Remove what a process left that was killed."""
    for path in folder.glob(f"{PARTIAL}*"):
        if time.time() - path.stat().st_mtime > ABANDONED:
            shutil.rmtree(path, ignore_errors=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _processor() -> str:
    """The architecture with a digest of the instructions it has, where the system tells them."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else [platform.processor()]
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), lines[0] if lines else "")
    return f"{platform.machine()}-{hashlib.sha256(' '.join(sorted(flags.split())).encode()).hexdigest()[:12]}"
