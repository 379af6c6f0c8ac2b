"""Runs a command whose output nobody has to see, with progress, and ends it with all its children when we are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_END_S = 5.0  # seconds that a command has to end before it is killed


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, both streams together, and its exit status; `hung`: it was ended after its time limit."""

    status: int
    text: str
    hung: bool = False

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.splitlines() if line.strip()]


def run(
    command: Sequence[str | Path],
    variables: Mapping[str, str],
    limit_s: float,
    tick: Callable[[], None] = lambda: None,
    tick_s: float = 2.0,
    folder: Path | None = None,
    inherited: Sequence[int] = (),
) -> Output:
    """Run a command until it ends or its time limit is over, and call `tick` every `tick_s` seconds meanwhile.

    `folder`: where it works; `inherited`: descriptors that it holds open, too.
    """
    deadline, hung = time.monotonic() + limit_s, False
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(variables),
            cwd=folder,
            start_new_session=True,
            pass_fds=inherited,
        )
        try:
            while process.poll() is None and not hung:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(tick_s)
                tick()
                hung = process.poll() is None and time.monotonic() > deadline
        finally:
            _end(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Output(process.returncode, text, hung)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
