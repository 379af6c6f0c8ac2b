"""The cascade's classifiers in a device process: load, warm up, run. Knows the runtime; knows nothing of texts or gates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.cascade.runtime import CascadeRuntime
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from registry import codec
from serving.cascade.messages import CascadeBuild, Output, Payload
from serving.workers.on_device import prepare, room

WARM_TOKENS = (8, 32)


def build(told: CascadeBuild) -> CascadeModel:
    """Raises `DigestError` where a folder changed since it was verified, `DeviceError` on another class of device.

    `WorkerError` where the device has no room.
    """
    prepare(told.plan)
    with room(told.plan.device):
        loaded = {one.number: codec.load(Classifier, one.folder, one.digest) for one in told.models}
        model = CascadeModel(CascadeRuntime(loaded, told.plan.device), told)
        for number, classifier in loaded.items():
            model.warm_up(number, classifier.max_length, told.plan.warm_batches)
    return model


class CascadeModel:
    """The runtime as a device_process.Model: a launch's setting is the number of the classifier that it runs."""

    def __init__(self, runtime: CascadeRuntime, told: CascadeBuild) -> None:
        self._runtime = runtime
        self._importance = {one.number: one.importance for one in told.models}

    def run(self, setting: int, payloads: Sequence[Payload]) -> tuple[Sequence[Output], float]:
        if setting not in self._importance:
            raise InputError("model", setting, f"one of those loaded here, {sorted(self._importance)}")
        run = self._runtime.run(setting, payloads, self._importance[setting])
        if run.importance is None:
            return [(logits, None) for logits in run.logits], run.seconds
        return list(zip(run.logits, run.importance, strict=True)), run.seconds

    def warm_up(self, number: int, max_length: int, batches: Sequence[int]) -> None:
        """The first run of a shape is slow (kernels are chosen, memory is taken): let no request meet it."""
        for tokens in WARM_TOKENS:
            size = min(tokens, max_length)
            for batch in batches:
                self.run(number, [(np.zeros(size, np.int32), np.zeros(size, np.int8))] * batch)

    def update(self, value: object) -> None:
        raise InputError("model", value, "left as it is: what changes is served by processes of its own")

    def load(self, number: int) -> None:
        raise InputError("model", number, "left as it is: this device process has loaded all that it runs")
