"""The messages between the packing service and its processes, engines and predictors. They need no torch.

A predictor's process answers calls as every device process does (serving/workers/device_process.py). To an engine's process:
its build, then (verb, arguments) with the verbs `submit`, `cancel` and `poll`. From it: (kind, value) with the kinds `ready`
or `failed` (once, after the build), `progress` (one per iteration), `status`, `report` (the answer to `poll`), `rejected` (a
submission) and `out_of_memory` (its last, with the number of sequences that ran).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pliant.packing.engine.submission import Progress, Status, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.serving.workers.child_process import Interpreter
from pliant.serving.workers.device_plan import BuildPlan, DevicePlan

NO_STATUS = Status(False, "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Engine(Protocol):
    """What runs in the process (pliant/packing/engine/runtime.py). Any thread may call any method."""

    def submit(self, submission: Submission) -> None:
        """Start an output. Raises `InputError` if it can never run, `WorkerError` if the engine has died."""

    def cancel(self, id: int) -> None: ...
    def status(self) -> Status: ...
    def stop(self) -> None: ...

    def check(self) -> None:
        """Raise `AssertionError` if the accounting of pages is wrong. Waits for an iteration, as no other method does."""


Deliver = Callable[[list[Progress]], None]
"""Called in the engine's thread with the progress of every iteration."""

Build = Callable[[Deliver], Engine]
"""Loads a model and starts its engine, in the engine's process. It is pickled by reference or as a frozen dataclass."""


@dataclass(frozen=True, slots=True)
class EngineBuild(BuildPlan):
    """Makes the engine in its process."""

    BUILDER: ClassVar[str] = "pliant.serving.packing.engine.device:build"

    folder: Path
    digest: str
    memory: Memory
    rules: Rules
    plan: DevicePlan
    journal: Path | None
    precision: str = "float32"  # in which the plan was measured
    token_bytes: int = 0  # of one token's keys and values; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmBuild(EngineBuild):
    """Makes vLLM the engine, in a process of vLLM's own environment."""

    BUILDER: ClassVar[str] = "pliant.serving.packing.vllm.running:build"

    home: Path  # where models are written for vLLM
    processes: int = 1  # that share the model
    interpreter: Interpreter | None = None  # vLLM's; None: this one


@dataclass(frozen=True, slots=True)
class PredictorBuild(BuildPlan):
    """Makes the predictor of output lengths in its process."""

    BUILDER: ClassVar[str] = "pliant.serving.packing.engine.predictor_device:build"

    folder: Path
    digest: str
    plan: DevicePlan
