"""Where the programs of Debian are that the stack runs and Pliant does not install."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pliant.benchmarks.harness import Skipped

PACKAGES = {
    "postgres": "postgresql",
    "initdb": "postgresql",
    "psql": "postgresql-client",
    "nginx": "nginx-light",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
"""Program -> Debian's package."""
FOLDERS = ("/usr/sbin", "/usr/lib/postgresql/*/bin")
"""Where Debian puts programs that are not on everybody's PATH."""


def program(name: str) -> str:
    """Return the path of a program: <NAME> in capitals, on the PATH, or where Debian puts it. Raises `Skipped`."""
    places = [os.environ.get(name.upper(), ""), shutil.which(name) or ""]
    places += [str(path) for folder in FOLDERS for path in sorted(Path("/").glob(f"{folder[1:]}/{name}"), reverse=True)]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    raise Skipped(
        f"{name} is not installed here (Debian's package {PACKAGES[name]}; the variable {name.upper()} may name it)"
    )
