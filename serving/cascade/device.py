"""The classifiers and exits of cascade in a device process: load, warm up, run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.cascade.artifact import Exit
from pliant.cascade.runtime import CascadeRuntime, Execution, Part
from pliant.device import reporting_memory
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.registry import codec
from pliant.serving.cascade.messages import CascadeBuild, Output, Payload
from pliant.serving.workers.on_device import prepare, usable_precision

WARM_TOKENS = (8, 32)  # lengths of the texts that every level runs before the first request


def build(spec: CascadeBuild) -> CascadeModel:
    """Return the model, loaded and warmed up.

    Raises `DigestError` if a folder has changed since it was verified, `DeviceError` on another class of device,
    `WorkerError` if the device lacks memory.
    """
    prepare(spec.plan)
    with reporting_memory(spec.plan.name):
        folders = {model.digest: model.folder for model in spec.models}
        classifiers = {digest: codec.load(Classifier, folder, digest) for digest, folder in folders.items()}
        parts = {
            model.number: Part(
                classifiers[model.digest],
                model.begin,
                None if model.exit is None else codec.load(Exit, model.exit, model.exit_digest),
            )
            for model in spec.models
        }
        executions = {
            model.number: Execution(usable_precision(model.precision, spec.plan.device, parts[model.number].name))
            for model in spec.models
        }
        model = CascadeModel(CascadeRuntime(parts, spec.plan.device, executions), spec)
        for number, part in parts.items():
            model.warm_up(number, part.classifier.max_length, spec.plan.warm_batches)
    return model


class CascadeModel:
    """The runtime as a `Model` of device_process.py. A launch's setting is the number of its level."""

    def __init__(self, runtime: CascadeRuntime, spec: CascadeBuild) -> None:
        self._runtime = runtime
        self._importance = {model.number: model.importance for model in spec.models}

    def run(self, setting: int, payloads: Sequence[Payload]) -> tuple[Sequence[Output], float]:
        if setting not in self._importance:
            raise InputError("model", setting, f"one of those loaded here, {sorted(self._importance)}")
        run = self._runtime.run(setting, payloads, self._importance[setting])
        if run.importance is None:
            return [(logits, None) for logits in run.logits], run.seconds
        return list(zip(run.logits, run.importance, strict=True)), run.seconds

    def warm_up(self, number: int, max_length: int, batches: Sequence[int]) -> None:
        """Run some shapes before the first request: first runs are slow, as kernels are chosen and memory allocated.

        What goes on behind an exit does so here too.
        """
        for tokens in WARM_TOKENS:
            size = min(tokens, max_length)
            for batch in batches:
                payloads = [(np.zeros(size, np.int32), np.zeros(size, np.int8))] * batch
                self._runtime.advance(number, payloads)
                self.run(number, payloads)

    def update(self, value: object) -> None:
        raise InputError("model", value, "left as it is: a new version runs in a new process")

    def load(self, number: int) -> None:
        raise InputError("model", number, "left as it is: this device process has loaded all of its models")
