"""Compiled files on disk: where they are, whether they are the registered ones, and how new ones are added atomically.

They contain or drive native code, so a file is loaded only if its SHA-256 is the one in the registered artifact.
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

VERSIONS = "made.json"  # versions and processor, beside the compiled files and digested with them
PARTIAL = ".partial-"
ABANDONED = 86_400.0  # seconds after which a partial folder belongs to no running process
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "onnx": ("onnxruntime", "torch", "transformers"),
    "graphs": ("torch", "transformers"),
    "eager": ("torch", "transformers"),
}
COMPILE_AGAIN = "`pliant profile bins` compiles again"


def cache_folder(home: Path, encoder_digest: str, device_class: str) -> Path:
    """Return the folder of an encoder's compiled files for a class of device."""
    slug = re.sub(r"[^a-z0-9]+", "-", device_class.lower()).strip("-")
    return home / "compiled" / encoder_digest[:16] / slug


def versions(engine: str) -> dict[str, str]:
    """Return what compiled files depend on: versions of packages, and the processor with its instructions.

    That is its architecture with a digest of the instruction sets, where the operating system lists them.
    """
    present = {}
    for package in PACKAGES[engine]:
        try:
            present[package] = version(package)
        except PackageNotFoundError:
            present[package] = "missing"
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else [platform.processor()]
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), lines[0] if lines else "")
    digest = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:12]
    return present | {"processor": f"{platform.machine()}-{digest}"}


def verify(folder: Path, files: Mapping[str, str]) -> None:
    """Check that all files are there and unaltered.

    Raises `ArtifactError` for one that is missing, and `DigestError` for one that differs.
    """
    for name, expected in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ArtifactError(f"{name} is not a file of the cache folder {folder}")
        if not path.is_file():
            raise ArtifactError(f"the compiled file {name} is missing in {folder}; {COMPILE_AGAIN}")
        if (digest := sha256(path)) != expected:
            raise DigestError(str(path), expected, digest)


def check_versions(folder: Path, files: Mapping[str, str], engine: str) -> Path:
    """Return the folder of verified files, after checking that these versions compiled them for this processor.

    Raises `DeviceError` where they did not, and `ArtifactError` where that is not recorded.
    """
    [record] = [name for name in files if name.endswith(f"/{VERSIONS}")] or [""]
    if not record:
        raise ArtifactError(f"{VERSIONS} is not among the compiled files; {COMPILE_AGAIN}")
    compiled_with, present = json.loads((folder / record).read_text()), versions(engine)
    for name in present:
        if compiled_with.get(name) != present[name]:
            raise DeviceError(
                f"compiled with {name} {compiled_with.get(name)}, but here is {present[name]}; {COMPILE_AGAIN}"
            )
    return (folder / record).parent


def store(folder: Path, engine: str, write: Callable[[Path], None]) -> dict[str, str]:
    """Let `write` fill a new folder, and move it into `folder` under a name made from its content: all or nothing.

    Returns file -> SHA-256, relative to `folder`. Former files stay, as other versions of the artifact may use them.
    Raises `ArtifactError` where the disk is full or not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for abandoned in folder.glob(f"{PARTIAL}*"):
            if time.time() - abandoned.stat().st_mtime > ABANDONED:
                shutil.rmtree(abandoned, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder))
        try:
            write(partial)
            (partial / VERSIONS).write_text(json.dumps(versions(engine), indent=1, sort_keys=True) + "\n")
            digests = {path.name: sha256(path) for path in sorted(partial.iterdir())}
            name = f"{engine}-{hashlib.sha256(repr(digests).encode()).hexdigest()[:16]}"
            files = {f"{name}/{file}": digest for file, digest in digests.items()}
            try:
                verify(folder, files)
            except ArtifactError:  # usually as it is not there yet; or it was damaged
                shutil.rmtree(folder / name, ignore_errors=True)
                partial.rename(folder / name)
            return files
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise ArtifactError(f"the compiled files could not be written to {folder}: {error.strerror}") from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
