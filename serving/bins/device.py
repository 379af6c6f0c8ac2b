"""The runtimes of bins in a device process: load, warm up, run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime, Payload
from pliant.device import reporting_memory
from pliant.errors import InputError
from pliant.registry import codec
from pliant.serving.bins.messages import BinsBuild, Output, StreamBuild, UnpooledPayload
from pliant.serving.workers.on_device import prepare, usable_precision

SHORT = 8  # tokens of the dynamic runtime's shorter warm-up


def build(spec: BinsBuild) -> BinsModel:
    """Return the model, loaded and warmed up.

    Raises `DigestError` if an encoder or a compiled file has changed since it was published, `ArtifactError` if a file is
    missing, `DeviceError` on another class of device, `WorkerError` if the device lacks memory.
    """
    prepare(spec.plan)
    with reporting_memory(spec.plan.name):
        model = BinsModel([_runtime(stream, spec) for stream in spec.streams], spec)
        if spec.first is not None:
            model.load(spec.first)
        else:
            model.warm_up(range(model.settings))
    return model


def _runtime(stream: StreamBuild, spec: BinsBuild) -> BinsRuntime:
    encoder = codec.load(Encoder, stream.folder, stream.digest)
    precision = usable_precision(stream.precision, spec.plan.device, encoder.name)
    return BinsRuntime(
        encoder,
        stream.shapes,
        stream.engine,
        stream.compiled,
        stream.files,
        spec.plan.device,
        spec.plan.threads or 1,
        spec.placement,
        precision,
    )


class BinsModel:
    """The runtimes as a `Model` of device_process.py. A launch's setting numbers the shapes of all streams in order."""

    def __init__(self, runtimes: Sequence[BinsRuntime], spec: BinsBuild) -> None:
        self._shapes: list[tuple[BinsRuntime, int, Shape]] = [
            (runtime, local, shape)
            for runtime, stream in zip(runtimes, spec.streams, strict=True)
            for local, shape in enumerate(stream.shapes)
        ]

    @property
    def settings(self) -> int:
        return len(self._shapes)

    def run(self, setting: int, payloads: Sequence[Payload]) -> tuple[Sequence[Output], float]:
        runtime, local, _ = self._shape(setting)
        unpooled = [number for number, payload in enumerate(payloads) if isinstance(payload, UnpooledPayload)]
        run = runtime.run(local, payloads, unpooled)
        return run.outputs, run.seconds

    def load(self, number: int) -> None:
        """Replace the runtime that is loaded by the one of the setting `number`."""
        runtime, local, shape = self._shape(number)
        runtime.load(local)
        kind = (runtime, shape.length, shape.dynamic)
        self.warm_up([n for n, (other, _, s) in enumerate(self._shapes) if (other, s.length, s.dynamic) == kind])

    def warm_up(self, settings: Sequence[int]) -> None:
        """Run every shape once before the first request: first runs are slow, as kernels are chosen and memory allocated."""
        for setting in settings:
            shape = self._shapes[setting][2]
            for size in {min(SHORT, shape.length), shape.length} if shape.dynamic else {shape.length}:
                self.run(setting, [(np.zeros(size, np.int32), np.zeros(size, np.int8))] * shape.batch)

    def update(self, value: object) -> None:
        raise InputError("model", value, "left as it is: a new version runs in a new process")

    def _shape(self, setting: int) -> tuple[BinsRuntime, int, Shape]:
        if not 0 <= setting < len(self._shapes):
            raise InputError("setting", setting, f"the number of a shape, from 0 to {len(self._shapes) - 1}")
        return self._shapes[setting]
