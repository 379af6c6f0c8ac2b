"""What a service cannot write at present, as the disk is full: a line in the log where it begins and ends, and a metric.

Whoever writes files beside serving has a `Writing`, and serving goes on whatever becomes of it.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from weakref import WeakSet

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors of a full disk and of a used up quota."""

logger = logging.getLogger("pliant.serving")


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
    failing: dict[str, bool] = {}
    for writing in list(_WRITINGS):
        failing[writing.what] = failing.get(writing.what, False) or writing.failing
    return failing
