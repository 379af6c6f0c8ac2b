"""Replaces or adds a folder of files in one step: complete or not at all; and temporary folders for downloads."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from pliant.errors import RegistryError
from pliant.temporary import OwnedFolder


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` hold exactly `files`, also after a power cut.

    Raises `RegistryError` if the disk refuses, or if the folder holds anything else, which would be lost.
    """
    with _drafted(folder, files) as draft, _beside(folder) as former:
        if folder.exists() and (others := {path.name for path in folder.iterdir()}.difference(files)):
            raise RegistryError(f"{folder} holds {min(others)}, which is no artifact's: choose another folder")
        try:
            with suppress(FileNotFoundError):
                folder.rename(former)
            draft.rename(folder)
        except BaseException:  # an interrupt too must not lose the old one
            if former.exists() and not folder.exists():
                former.rename(folder)
            raise


def add_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` hold `files`, unless there is one that holds anything, which stays as it is.

    Of several processes that do it at once one is the first. Raises `RegistryError` if the disk refuses.
    """
    with _drafted(folder, files) as draft:
        try:
            draft.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def sync_tree(folder: Path) -> None:
    """Write a folder and all below it to the disk, and the names of the folders above it, so that a power cut loses none.

    Raises `RegistryError` if the disk refuses.
    """
    try:
        for path in sorted(folder.rglob("*")):
            if not path.is_symlink():
                _sync(path)
        for path in (folder, *folder.parents[:4]):  # MLflow makes ROOT/models/<id>/artifacts anew
            _sync(path)
    except OSError as error:
        raise RegistryError(f"{folder} cannot be written to the disk: {error.strerror or error}") from error


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 where there is nothing."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


@contextmanager
def _drafted(folder: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Give a folder that holds `files`, to be renamed to `folder`. Raises `RegistryError` if the disk refuses."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _beside(folder) as draft:
            draft.mkdir()
            for name, content in files.items():
                with (draft / name).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            _sync(draft)
            yield draft
            _sync(folder.parent)
    except OSError as error:
        raise RegistryError(f"{folder} cannot be written: {error.strerror or error}") from error


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Give a free path on the same file system, and remove what lies there afterwards."""
    path = folder.parent / f".{folder.name}-{uuid4().hex}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Write a file or a folder to the disk: a rename is there only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Downloads:
    """One folder a download, all of them under a root that is removed with this object, or when the process ends.

    What a process that was killed has left is removed by the next one that downloads.
    """

    def __init__(self) -> None:
        self._root: OwnedFolder | None = None

    def fresh(self) -> Path:
        """Return a new empty folder."""
        if self._root is None:
            self._root = OwnedFolder()
        return Path(tempfile.mkdtemp(dir=self._root.path))

    def remove(self, path: Path) -> None:
        """Remove the download that `path` lies in; any other path is left alone."""
        if self._root is not None and self._root.path in path.parents:
            shutil.rmtree(self._root.path / path.relative_to(self._root.path).parts[0], ignore_errors=True)
