"""The tokens model in its device process: load, warm up, run.

Knows the runtime and how many threads it may take; knows nothing of requests or the registry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture

from pliant.errors import InputError
from pliant.models.image import to_pixels
from pliant.tokens.artifact import Backbone
from pliant.tokens.runtime import Payload, TokensRuntime
from registry import codec
from serving.tokens.catalog import ServedTask
from serving.tokens.messages import Image, Output, TokensBuild
from serving.workers.on_device import prepare, room


def build(told: TokensBuild) -> TokensModel:
    """Raises `DigestError` where the folder changed since it was verified, `DeviceError` on another class of device.

    `WorkerError` where the device has no room.
    """
    prepare(told.plan)
    with room(told.plan.device):
        backbone = codec.load(Backbone, told.folder, told.digest)
        runtime = TokensRuntime(backbone, told.digest, [served.task for served in told.tasks], told.plan.device)
        model = TokensModel(runtime, told, backbone.image_size)
        warm_up(runtime, told.tasks[0].task.name, backbone.image_size, told.gammas, told.plan.warm_batches)
    return model


class TokensModel:
    """The runtime as a device_process.Model; each output names the versions of task and backbone that gave it."""

    def __init__(self, runtime: TokensRuntime, told: TokensBuild, image_size: int) -> None:
        self._runtime, self._backbone, self._image_size = runtime, told.digest, image_size
        self._digests = {served.task.name: served.digest for served in told.tasks}

    def run(self, setting: int, payloads: Sequence[Image]) -> tuple[Sequence[Output], float]:
        run = self._runtime.run(setting, [Payload(task, fit(pixels, self._image_size)) for task, pixels in payloads])
        digests = [(self._digests[task], self._backbone) for task, _ in payloads]
        return [(*pair, row) for pair, row in zip(digests, run.probabilities, strict=True)], run.seconds

    def update(self, value: ServedTask) -> None:
        self._runtime.update([value.task])
        self._digests[value.task.name] = value.digest

    def load(self, number: int) -> None:
        raise InputError("model", number, "left as it is: this device process has one model alone")


def fit(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """A request that was on its way when the backbone changed holds an image of the former one's size."""
    return pixels if pixels.shape[0] == size else to_pixels(Picture.fromarray(pixels), size)


def warm_up(runtime: TokensRuntime, task: str, size: int, gammas: Sequence[int], batches: Sequence[int]) -> None:
    """The first run of a shape is slow (kernels are chosen, memory is taken): let no request meet it."""
    runtime.warm(gammas)
    blank: NDArray[np.uint8] = np.zeros((size, size, 3), dtype=np.uint8)
    for gamma in gammas:
        for batch in batches:
            runtime.run(gamma, [Payload(task, blank)] * batch)
