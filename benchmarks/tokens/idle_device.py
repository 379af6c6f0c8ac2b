"""A device process that computes nothing: it takes a batch, waits as long as a fast device would take, and answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from serving.tokens.messages import Image, Output, TokensBuild
from serving.workers.device_plan import BuildPlan

SECONDS = 0.005  # of a launch, whatever its size: others arrive meanwhile and make the next batch


@dataclass(frozen=True, slots=True)
class IdleBuild(BuildPlan):
    """Makes the idle model in place of the one that `real` would make."""

    BUILDER: ClassVar[str] = "benchmarks.tokens.idle_device:build"

    real: TokensBuild


def build(spec: IdleBuild) -> IdleModel:
    return IdleModel(spec.real)


class IdleModel:
    """Answers every image with the first class of its task."""

    def __init__(self, spec: TokensBuild) -> None:
        self._backbone = spec.digest
        self._tasks = {served.task.name: (served.digest, len(served.task.classes)) for served in spec.tasks}

    def run(self, _setting: int, payloads: Sequence[Image]) -> tuple[Sequence[Output], float]:
        time.sleep(SECONDS)
        outputs: list[Output] = []
        for task, _pixels in payloads:
            digest, classes = self._tasks[task]
            outputs.append((digest, self._backbone, np.eye(1, classes, dtype=np.float32)[0]))
        return outputs, SECONDS

    def update(self, value: Any) -> None: ...

    def load(self, number: int) -> None: ...
