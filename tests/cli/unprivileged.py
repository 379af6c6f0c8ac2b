"""Commands that are held to the rights of files also where the tests run as root, who may otherwise read and write all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import pytest

UNPRIVILEGED: Sequence[str] = ()
"""What stands before a command."""
if os.geteuid() == 0:
    UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")

needs_unprivileged = pytest.mark.skipif(
    bool(UNPRIVILEGED) and shutil.which("setpriv") is None,
    reason="root may read and write everything, and setpriv (Debian: util-linux) is not there to take that away",
)
