"""Small files in which a service keeps what it knows for its next start, and what it cannot write at present.

Whoever writes files beside serving has a `Writing`: a line in the log says where trouble such as a full disk begins and
ends, a metric shows it, and serving goes on whatever becomes of it.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

logger = logging.getLogger("pliant.serving")

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors of a full disk and of a used up quota."""


class Writing:
    """Whether one part of the service can write its files below `path`. `what` is the label of the metric."""

    def __init__(self, what: str, path: Path) -> None:
        self.what, self._path, self.failing = what, path, False
        _WRITINGS.add(self)

    def failed(self, sentence: str) -> None:
        """Log the sentence, unless writing has failed before."""
        if not self.failing:
            logger.error("%s", sentence)
        self.failing = True

    def succeeded(self) -> None:
        """Log that writing goes on, if it had failed."""
        if self.failing:
            logger.warning("%s: %s is written again", self.what, self._path)
        self.failing = False


_WRITINGS: WeakSet[Writing] = WeakSet()


def writings() -> dict[str, bool]:
    """Return whether writing fails at present, by what is written, of all in this process."""
    known = list(_WRITINGS)
    return {what: any(each.failing for each in known if each.what == what) for what in {each.what for each in known}}


class StateFile:
    """A JSON object in a file. Whatever the disk does is logged, once for each kind of trouble, and serving goes on."""

    def __init__(self, path: Path) -> None:
        self.path, self._trouble = path, ""
        self._writing = Writing(path.parent.name, path)

    def write(self, content: dict[str, Any]) -> bool:
        """Replace the file, and return whether that succeeded; if not, it is as it was."""
        draft = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(content), encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            self._writing.failed(f"{self.path} cannot be written: {error.strerror}; serving goes on")
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        self._writing.succeeded()
        return True

    def read(self) -> dict[str, Any] | None:
        """Return the content; None where there is no file, or one that cannot be read."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(f"{self.path} cannot be read, and is begun anew: {error}")
            return None
        if isinstance(content, dict):
            return content
        self._warn(f"{self.path} holds no object, and is begun anew")
        return None

    def remove(self) -> None:
        """Remove the file, if there is one."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{self.path} cannot be removed: {error.strerror}")

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning("%s", trouble)
        self._trouble = trouble
