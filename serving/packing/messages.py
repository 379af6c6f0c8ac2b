"""What passes between the packing service and its engine processes. Plain values: the service needs no torch for them.

To the process: its build, then (verb, arguments) with the verbs `submit`, `cancel` and `look`. From it: (kind, value) with
the kinds `ready` or `refused` (once, after the build), `progress` (one an iteration), `status`, `looked` and `declined`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pliant.packing.engine.submission import Progress, Status, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from serving.workers.device_plan import BuildPlan, DevicePlan

NO_STATUS = Status(False, "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Engine(Protocol):
    """What runs in the process (pliant/packing/engine/runtime.py). Every method may be called from any thread."""

    def submit(self, submission: Submission) -> None:
        """Raises `InputError` for what can never run, `WorkerError` where the engine died."""

    def cancel(self, id: int) -> None: ...
    def status(self) -> Status: ...
    def stop(self) -> None: ...

    def check(self) -> None:
        """Raises `AssertionError` where the books do not balance. Waits for one iteration; the others do not."""


Deliver = Callable[[list[Progress]], None]
"""Called in the engine's thread, once an iteration."""

Build = Callable[[Deliver], Engine]
"""Loads a model and starts its engine, in the engine's process; pickled by reference or as a frozen dataclass."""


@dataclass(frozen=True, slots=True)
class EngineBuild(BuildPlan):
    """How an engine process makes its engine; called there."""

    BUILDER: ClassVar[str] = "serving.packing.engine.device:build"

    folder: Path
    digest: str
    memory: Memory
    rules: Rules
    plan: DevicePlan
    journal: Path | None
    processes: int = 1  # that share the model, this one with those that it starts
