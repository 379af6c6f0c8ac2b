"""A publisher in a process of its own that is killed by the system (SIGKILL) at any write of its registry.

The processes are forks of a server that has imported what they need and opened nothing, so each takes a fraction of a
second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.half_publishes import Publisher, Steps, lighten, stepping

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, "mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store", "pandas"])
SECONDS = 300.0  # until a child that hangs is given up


@dataclass
class Fatal(Steps):
    """At step `kill` the process is killed, without a chance to clean up."""

    def step(self, name: str) -> None:
        if len(self.names) == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(name)


def publish(folder: Path, seed: int, kill: int | None, environment: dict[str, str]) -> None:
    """Publish, and die at that write."""
    os.environ.update(environment)
    with pytest.MonkeyPatch.context() as patch:
        lighten(patch)
        with stepping(patch, folder / "nothing", Fatal(kill)):
            Publisher(folder).publish(seed)


def killed(folder: Path, seed: int, kill: int | None, **environment: str) -> bool:
    """Publish in a process of its own, and return whether it was killed before its end. Raises where it failed."""
    child = _CONTEXT.Process(target=publish, args=(folder, seed, kill, environment))
    child.start()
    child.join(SECONDS)
    if child.exitcode not in (0, -signal.SIGKILL):
        child.kill()
        raise AssertionError(f"the publisher ended with {child.exitcode}")
    return child.exitcode != 0
