"""Temporary folders for downloads, removed with their owner at the latest. Knows nothing of what lies in them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pliant.temporary import OwnedFolder


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
