"""The bins' runtimes in a device process: load, warm up, run. Knows the runtimes; knows nothing of texts or queues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from registry import codec
from serving.bins.messages import BinsBuild, Output, Payload, StreamBuild
from serving.workers.on_device import prepare, room

SHORT = 8  # tokens of the dynamic runtime's shorter warm-up


def build(told: BinsBuild) -> BinsModel:
    """Raises `DigestError` where an encoder or a compiled file changed since it was published (the runtimes look before
    they load any), `ArtifactError` where a file is missing, `DeviceError` on another class of device, `WorkerError` where
    the device has no room.
    """
    prepare(told.plan)
    with room(told.plan.device):
        model = BinsModel([_runtime(stream, told) for stream in told.streams], told)
        if told.first is not None:
            model.load(told.first)
        else:
            model.warm_up(range(model.settings))
    return model


def _runtime(stream: StreamBuild, told: BinsBuild) -> BinsRuntime:
    return BinsRuntime(
        codec.load(Encoder, stream.folder, stream.digest),
        stream.shapes,
        stream.engine,
        stream.compiled,
        stream.files,
        told.plan.device,
        told.plan.threads or 1,
        told.placement,
    )


class BinsModel:
    """The runtimes as a device_process.Model: a launch's setting counts the shapes of all streams, one after the other."""

    def __init__(self, runtimes: Sequence[BinsRuntime], told: BinsBuild) -> None:
        self._places: list[tuple[BinsRuntime, int, Shape]] = [
            (runtime, local, shape)
            for runtime, stream in zip(runtimes, told.streams, strict=True)
            for local, shape in enumerate(stream.shapes)
        ]

    @property
    def settings(self) -> int:
        return len(self._places)

    def run(self, setting: int, payloads: Sequence[Payload]) -> tuple[Sequence[Output], float]:
        runtime, local, _ = self._place(setting)
        run = runtime.run(local, payloads)
        return run.outputs, run.seconds

    def load(self, number: int) -> None:
        """The runtime of one length takes the place of the stream's that is loaded."""
        runtime, local, shape = self._place(number)
        runtime.load(local)
        kind = (runtime, shape.length, shape.dynamic)
        self.warm_up([at for at, (one, _, s) in enumerate(self._places) if (one, s.length, s.dynamic) == kind])

    def warm_up(self, settings: Sequence[int]) -> None:
        """The first run of a shape is slow (kernels are chosen, memory is taken): let no request meet it."""
        for setting in settings:
            shape = self._places[setting][2]
            for size in {min(SHORT, shape.length), shape.length} if shape.dynamic else {shape.length}:
                self.run(setting, [(np.zeros(size, np.int32), np.zeros(size, np.int8))] * shape.batch)

    def update(self, value: object) -> None:
        raise InputError("model", value, "left as it is: what changes is served by processes of its own")

    def _place(self, setting: int) -> tuple[BinsRuntime, int, Shape]:
        if not 0 <= setting < len(self._places):
            raise InputError("setting", setting, f"the number of a shape, from 0 to {len(self._places) - 1}")
        return self._places[setting]
