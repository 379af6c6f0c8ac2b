"""Follows the commands of a page of docs, word for word, in one shell."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import psutil

from pliant.errors import PliantError
from pliant.flows import servers

DONE = "-- this command is done --"
SECONDS = 600.0  # of one command
STOPPED = 30.0  # seconds in which what the commands have started may end by itself


@dataclass(frozen=True, slots=True)
class Step:
    """A command that was run, and the seconds that it took."""

    command: str
    seconds: float


def commands(page: str, heading: str) -> list[str]:
    """Return the commands below a heading of a page in Markdown, each a line. Raises `PliantError` where there are none."""
    _, found, below = page.partition(f"# {heading}\n")
    section = re.split(r"^#+ ", below, maxsplit=1, flags=re.MULTILINE)[0]
    block = re.search(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    if not found or block is None:
        raise PliantError(f"the page has no commands below the heading {heading!r}")
    return block[1].splitlines()


class Shell:
    """A bash that ends with the first command that fails. `output`: the lines that its commands have printed."""

    def __init__(self, environment: Mapping[str, str], folder: Path | None = None) -> None:
        self.output: list[str] = []
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
        threading.Thread(target=self._read, name="reader of commands", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "a pipe"
        for line in self._process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def run(self, command: str, seconds: float = SECONDS) -> Step:
        """Run a command; what it leaves in the background runs on. Raises `PliantError` that says what it printed."""
        assert self._process.stdin is not None, "a pipe"
        begun = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            # In a line of its own: an answer of curl ends without a new line.
            self._process.stdin.write(f"{command}\nprintf '\\n{DONE}\\n'\n")
            self._process.stdin.flush()
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, begun + seconds - time.monotonic()))
            except Empty:
                raise PliantError(f"{command} has not ended within {seconds:g} s: {self._last()}") from None
            if line is None:
                raise PliantError(f"the command fails: {command}: {self._last()}")
            if line == DONE:
                return Step(command, time.monotonic() - begun)
            if line:
                self.output.append(line)

    def _last(self) -> str:
        return " | ".join(line[-300:] for line in self.output[-3:]) or "it printed nothing"

    def stop(self) -> None:
        """End bash and all that it has started, which has some seconds to end by itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(self._process.pid).children(recursive=True)
            for process in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            for process in psutil.wait_procs(started, STOPPED)[1]:
                process.kill()
        servers.stop(self._process)
