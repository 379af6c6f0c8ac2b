"""The tokens model in its device process: load, warm up, run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture

from pliant.device import reporting_memory
from pliant.errors import InputError
from pliant.models.image import to_pixels
from pliant.registry import codec
from pliant.serving.tokens.catalog import Image, Output, ServedTask, TokensBuild
from pliant.serving.workers.on_device import prepare, usable_precision
from pliant.tokens.artifact import Backbone
from pliant.tokens.runtime import Execution, Payload, TokensRuntime


def build(spec: TokensBuild) -> TokensModel:
    """Return the model, loaded and warmed up.

    Raises `DigestError` if the folder has changed since it was verified, `DeviceError` on another class of device,
    `WorkerError` if the device lacks memory.
    """
    prepare(spec.plan)
    with reporting_memory(spec.plan.name):
        backbone = codec.load(Backbone, spec.folder, spec.digest)
        tasks = [served.task for served in spec.tasks]
        execution = Execution(
            precision=spec.precision and usable_precision(spec.precision, spec.plan.device, "the backbone")
        )
        served = backbone, spec.digest, tasks, spec.plan.device, execution
        runtime = TokensRuntime(*served, points=spec.points, gammas=spec.gammas)
        model = TokensModel(runtime, spec, backbone.image_size)
        warm_up(runtime, spec.tasks[0].task.name, backbone.image_size, spec.gammas, spec.plan.warm_batches)
    return model


class TokensModel:
    """The runtime as a `Model` of device_process.py. Each output names the digests of its task and backbone."""

    def __init__(self, runtime: TokensRuntime, spec: TokensBuild, image_size: int) -> None:
        self._runtime, self._backbone, self._image_size = runtime, spec.digest, image_size
        self._digests = {served.task.name: served.digest for served in spec.tasks}

    def prepare(self, setting: int, payloads: Sequence[Image]) -> Sequence[Image]:
        """Return the images at the model's size, which those decoded for another backbone lack, and send them ahead."""
        del setting
        images = [(task, fit(pixels, self._image_size)) for task, pixels in payloads]
        self._runtime.send([pixels for _, pixels in images])
        return images

    def run(self, setting: int, payloads: Sequence[Image]) -> tuple[Sequence[Output], float]:
        run = self._runtime.run(setting, [Payload(task, fit(pixels, self._image_size)) for task, pixels in payloads])
        digests = [(self._digests[task], self._backbone) for task, _ in payloads]
        return [(*pair, row) for pair, row in zip(digests, run.probabilities, strict=True)], run.seconds

    def update(self, value: ServedTask) -> None:
        self._runtime.update([value.task])
        self._digests[value.task.name] = value.digest

    def load(self, number: int) -> None:
        raise InputError("model", number, "left as it is: this device process has only one model")


def fit(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return the image at the model's size; it may have been decoded for a backbone of another size."""
    return pixels if pixels.shape[0] == size else to_pixels(Picture.fromarray(pixels), size)


def warm_up(runtime: TokensRuntime, task: str, size: int, gammas: Sequence[int], batches: Sequence[int]) -> None:
    """Run every shape once before the first request: first runs are slow, as kernels are chosen and memory allocated."""
    runtime.warm(gammas)
    blank: NDArray[np.uint8] = np.zeros((size, size, 3), dtype=np.uint8)
    for gamma in gammas:
        for batch in batches:
            runtime.run(gamma, [Payload(task, blank)] * batch)
