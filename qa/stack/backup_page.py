"""Follows the commands of docs/backup.md word for word."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from benchmarks.places import ROOT
from flows.servers import nothing
from pliant.errors import PliantError

PAGE = ROOT / "docs" / "backup.md"
DATABASES, FILE, STATE = "Databases and artifacts, with Postgres", "Registry in a file", "State and keys, in both cases"
DATABASES_BACK, FILE_BACK, STATE_BACK = (
    "Databases and artifacts into Postgres",
    "Registry into a file",
    "State and keys back",
)
RUNS_BACK = "Runs that were under way"
"""Headings of the page, each with one block of commands."""
DONE = "-- this command is done --"


@dataclass(frozen=True, slots=True)
class Step:
    """A command that was run, and the seconds that it took."""

    command: str
    seconds: float


def commands(heading: str, text: str | None = None) -> list[str]:
    """Return the commands below a heading of the page, each a line. Raises `PliantError` where there are none."""
    content = PAGE.read_text(encoding="utf-8") if text is None else text
    _, heading_line, below = content.partition(f"\n### {heading}\n")
    block = re.search(
        r"^```\n(.*?)^```$", re.split(r"^#+ ", below, maxsplit=1, flags=re.MULTILINE)[0], re.DOTALL | re.M
    )
    if not heading_line or block is None:
        raise PliantError(f"{PAGE} has no commands below the heading {heading!r}")
    return block[1].splitlines()


def follow(listed: Iterable[str], variables: Mapping[str, str], between: Callable[[], object] = nothing) -> list[Step]:
    """Run commands in one shell that ends at the first which fails, and call `between` after each.

    Raises `PliantError` with what the failed command wrote.
    """
    steps = list[Step]()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **variables},
        )
        with process:
            for command in listed:
                begun = time.monotonic()
                if not _run(process, command):
                    errors.seek(0)
                    raise PliantError(f"the command fails: {command}: {errors.read().strip()[-500:]}")
                steps.append(Step(command, time.monotonic() - begun))
                between()
    return steps


def _run(process: subprocess.Popen[str], command: str) -> bool:
    """Give the shell a command, and return whether it came to its end well."""
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    process.stdin.write(f"{command}\necho '{DONE}'\n")
    process.stdin.flush()
    return any(line.strip() == DONE for line in iter(process.stdout.readline, ""))
