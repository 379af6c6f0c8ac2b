"""Variants in their device process: one is loaded at a time and runs at gamma 0."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import torch

from pliant.device import reporting_memory
from pliant.errors import InputError
from pliant.tokens.artifact import Variant
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from registry import codec
from serving.tokens.catalog import ServedTask
from serving.tokens.device import fit, warm_up
from serving.tokens.messages import Image, Output, VariantsBuild
from serving.workers.device_plan import DevicePlan
from serving.workers.on_device import prepare, usable_precision


def build(spec: VariantsBuild) -> VariantsModel:
    """Return the model with the first variant loaded. Raises as serving.tokens.device.build."""
    prepare(spec.plan)
    model = VariantsModel(spec)
    model.load(0)
    return model


class VariantsModel:
    """A `Model` of device_process.py. A launch of a variant that is not loaded, as after a restart, loads it first."""

    def __init__(self, spec: VariantsBuild) -> None:
        self._spec = spec
        self._number: int | None = None
        self._resident: _Resident | None = None

    def run(self, setting: int, payloads: Sequence[Image]) -> tuple[Sequence[Output], float]:
        if setting != self._number:
            self.load(setting)
        assert self._resident is not None, "load sets it or raises"
        return self._resident.run(payloads)

    def update(self, value: ServedTask) -> None:
        raise InputError("task", value.task.name, "part of the variants, which are not changed one task at a time")

    def load(self, number: int) -> None:
        """Load and warm up a variant. The present one is unloaded first: there may be memory for one only."""
        if number == self._number:
            return
        if not 0 <= number < len(self._spec.variants):
            raise InputError("variant", number, f"one of 0 to {len(self._spec.variants) - 1}")
        self._number = self._resident = None
        if self._spec.plan.device.startswith("cuda"):
            # A runtime with CUDA graphs refers to itself, and the first one was frozen after the build.
            gc.unfreeze()
            gc.collect()
            torch.cuda.empty_cache()
        with reporting_memory(self._spec.plan.name):
            self._resident = _Resident(*self._spec.variants[number], self._spec.plan)
        self._number = number


class _Resident:
    """The variant that is loaded."""

    def __init__(self, folder: Path, digest: str, plan: DevicePlan) -> None:
        variant = codec.load(Variant, folder, digest)
        self._digest, self._image_size = digest, variant.backbone.image_size
        tasks = variant.adapters(digest)
        execution = Execution(
            precision=variant.precision and usable_precision(variant.precision, plan.device, "the variant")
        )
        self._runtime = TokensRuntime(variant.backbone, digest, tasks, plan.device, execution)
        warm_up(self._runtime, tasks[0].name, self._image_size, (0,), plan.warm_batches)

    def run(self, payloads: Sequence[Image]) -> tuple[Sequence[Output], float]:
        run = self._runtime.run(0, [Payload(task, fit(pixels, self._image_size)) for task, pixels in payloads])
        rows = zip(payloads, run.probabilities, strict=True)
        return [(task, self._digest, row) for (task, _), row in rows], run.seconds
