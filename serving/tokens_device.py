"""The tokens model in its device process: load, warm up, run. The only file of this folder that brings torch along.

Knows the runtime and how many threads it may take; knows nothing of requests or the registry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pliant.errors import DeviceError
from pliant.tokens.artifact import Backbone
from pliant.tokens.runtime import Payload, TokensRuntime, device_class, threads
from registry import codec
from serving.tokens_catalog import ServedTask
from serving.tokens_payload import Image, Output, TokensBuild


def build(plan: TokensBuild) -> TokensModel:
    """Raises `DigestError` where the folder changed since it was verified, `DeviceError` on another class of device."""
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    if plan.profiled_on is not None:
        check_device(plan.profiled_on, plan.device, plan.threads)
    backbone = codec.load(Backbone, plan.folder, plan.digest)
    runtime = TokensRuntime(backbone, plan.digest, [served.task for served in plan.tasks], plan.device)
    model = TokensModel(runtime, plan.tasks)
    _warm_up(runtime, plan, backbone.image_size)
    return model


class TokensModel:
    """The runtime as a device_process.Model; each output names the task version that gave it."""

    def __init__(self, runtime: TokensRuntime, tasks: Sequence[ServedTask]) -> None:
        self._runtime = runtime
        self._digests = {served.task.name: served.digest for served in tasks}

    def run(self, setting: int, payloads: Sequence[Image]) -> tuple[Sequence[Output], float]:
        run = self._runtime.run(setting, [Payload(task, pixels) for task, pixels in payloads])
        digests = [self._digests[task] for task, _ in payloads]
        return list(zip(digests, run.probabilities, strict=True)), run.seconds

    def update(self, value: ServedTask) -> None:
        self._runtime.update([value.task])
        self._digests[value.task.name] = value.digest


def check_device(profiled: str, device: str, thread_count: int | None) -> None:
    """Raises `DeviceError` where a profile was measured on another class of device than it is to be used on."""
    with threads(thread_count):
        found = device_class(device)
    if found != profiled:
        raise DeviceError(
            f"the profile was measured on {profiled}, but this device is {found}: profile again on it, give as many "
            "threads as were profiled (--threads), or serve regardless (--any-profile)"
        )


def _warm_up(runtime: TokensRuntime, plan: TokensBuild, size: int) -> None:
    """The first run of a shape is slow (kernels are chosen, memory is taken): let no request meet it."""
    blank: NDArray[np.uint8] = np.zeros((size, size, 3), dtype=np.uint8)
    for gamma in plan.gammas:
        for batch in plan.warm_batches:
            runtime.run(gamma, [Payload(plan.tasks[0].task.name, blank)] * batch)
