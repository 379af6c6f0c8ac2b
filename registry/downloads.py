"""Temporary folders for downloads, removed with their owner at the latest. Knows nothing of what lies in them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class Downloads:
    """One folder a download, all of them under a root that is removed with this object, or when the process ends."""

    def __init__(self) -> None:
        self._root: Path | None = None

    def fresh(self) -> Path:
        """Return a new empty folder."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="pliant-"))
            weakref.finalize(self, shutil.rmtree, self._root, True)
        return Path(tempfile.mkdtemp(dir=self._root))

    def remove(self, path: Path) -> None:
        """Remove the download that `path` lies in; any other path is left alone."""
        if self._root is not None and self._root in path.parents:
            shutil.rmtree(self._root / path.relative_to(self._root).parts[0], ignore_errors=True)
