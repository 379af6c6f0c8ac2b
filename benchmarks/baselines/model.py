"""What the three services have in common: the champion's model at gamma 0, the body they take, the answer they give.

Runs in the services' own processes, which learn by two environment variables what to serve and how. Knows no framework.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pliant.device import AUTO, resolve_device
from pliant.models.image import MAX_PIXELS, decode
from pliant.registry import codec
from pliant.tokens.artifact import Backbone, Task
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

MODEL_VARIABLE, OPTIONS_VARIABLE = "RIVAL_MODEL", "RIVAL_OPTIONS"
GAMMA = 0
PATH = "/v1/predict"

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified folder and its digest."""

    folder: str
    digest: str


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which artifacts to serve. `image_size` in pixels; `precision`: see `Execution` of the runtime."""

    backbone: Artifact
    tasks: tuple[Artifact, ...]
    image_size: int
    precision: str | None = None

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> ModelSpec:
        plain = json.loads(text)
        tasks = tuple(Artifact(**task) for task in plain["tasks"])
        return ModelSpec(Artifact(**plain["backbone"]), tasks, plain["image_size"], plain["precision"])


@dataclass(frozen=True, slots=True)
class Question:
    """One request's task and image, uint8 [H, W, 3] at the backbone's size."""

    task: str
    pixels: NDArray[np.uint8]


def spec() -> ModelSpec:
    """Return what the launcher told this process to serve."""
    return ModelSpec.of(os.environ[MODEL_VARIABLE])


def options() -> dict[str, Any]:
    """Return the framework's settings that the launcher told this process."""
    settings: dict[str, Any] = json.loads(os.environ[OPTIONS_VARIABLE])
    return settings


def read(fields: Mapping[str, Any], size: int) -> Question:
    """Read a body's fields and decode the image as pliant/models/image.py does. Deadline and utility mean nothing here."""
    return Question(fields["task"], decode(base64.b64decode(fields["image"]), size, MAX_PIXELS))


class Model:
    """The champion on one torch thread, run once at every power of two up to `most` images before it serves."""

    def __init__(self, served: ModelSpec, most: int) -> None:
        torch.set_num_threads(1)
        backbone = codec.load(Backbone, Path(served.backbone.folder), served.backbone.digest)
        tasks = [codec.load(Task, Path(task.folder), task.digest) for task in served.tasks]
        self.size = served.image_size
        self._classes = {task.name: task.classes for task in tasks}
        execution = Execution(precision=served.precision)
        self._runtime = TokensRuntime(backbone, served.backbone.digest, tasks, resolve_device(AUTO), execution)
        blank = np.zeros((self.size, self.size, 3), dtype=np.uint8)
        for batch in sorted({*(2**i for i in range(most.bit_length())), most}):
            self._runtime.run(GAMMA, [Payload(tasks[0].name, blank)] * batch)

    def classify(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer a question, in their order."""
        run = self._runtime.run(GAMMA, [Payload(question.task, question.pixels) for question in questions])
        rows = zip(questions, run.probabilities, strict=True)
        labels = [self._classes[question.task][int(row.argmax())] for question, row in rows]
        shared = {"gamma": GAMMA, "batch_size": len(questions), "run_seconds": run.seconds}
        return [{"label": label, **shared} for label in labels]
