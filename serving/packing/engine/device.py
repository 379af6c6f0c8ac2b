"""What runs in the device processes of packing: engines, and predictors of output lengths."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from pliant.device import free_bytes, reporting_memory
from pliant.errors import InputError
from pliant.packing.artifact import Generator, Predictor
from pliant.packing.engine.model import PredictorModel, in_precision, load
from pliant.packing.engine.runtime import Engine
from pliant.packing.scheduling.forecast import Forecast
from pliant.packing.scheduling.request import check_fits
from pliant.precision import check_precision
from pliant.registry import codec
from pliant.serving.packing.engine.engine_process import Deliver, EngineBuild, PredictorBuild, recorder
from pliant.serving.packing.engine.forecaster import MAX_TEXTS, SETTING
from pliant.serving.workers.on_device import prepare


def build(spec: EngineBuild, deliver: Deliver) -> Engine:
    """Return a started engine.

    Raises `DigestError` if the generator has changed since it was published, `DeviceError` on another class of device than
    was profiled, `WorkerError` if the device lacks memory, `InputError` for a memory that it has no room for and if
    the device lacks the precision of the plan.
    """
    prepare(spec.plan)
    plan = spec.plan
    check_precision(spec.precision, plan.device)
    generator = in_precision(codec.load(Generator, spec.folder, spec.digest), spec.precision)
    weights = sum(array.nbytes for array in generator.weights.values())
    check_fits(spec.memory, spec.token_bytes, weights, free_bytes(plan.device), plan.name)
    journal = recorder(spec.journal) if spec.journal else None
    with reporting_memory(plan.name):
        engine = Engine(generator, spec.memory, spec.rules, deliver, plan.device, plan.threads or 1, journal=journal)
        engine.start()
    return engine


WARM = ("a prompt", "a longer prompt of several words")
FULL = ("word " * 64,) * MAX_TEXTS
"""As many prompts as are ever predicted together, so that their memory is taken at the start."""


def build_predictor(spec: PredictorBuild) -> PredictorDevice:
    """Return the predictor, loaded and warmed up.

    Raises `DigestError` if the predictor has changed since it was published, `ArtifactError` if it cannot be used,
    `WorkerError` if the device lacks memory.
    """
    prepare(spec.plan)
    # oneDNN keeps something of each number and length of prompts, so that the process grew for hours; it is no faster here.
    torch.backends.mkldnn.set_flags(False)
    with reporting_memory(spec.plan.name):
        device = PredictorDevice(load(codec.load(Predictor, spec.folder, spec.digest), spec.plan.device))
        for texts in (FULL, WARM):
            device.run(SETTING, texts)
    return device


class PredictorDevice:
    """The predictor as a `Model` of device_process.py. A launch's payloads are the prompts' texts."""

    def __init__(self, predictor: PredictorModel) -> None:
        self._predictor = predictor

    def run(self, setting: int, payloads: Sequence[str]) -> tuple[Sequence[Forecast], float]:
        if setting != SETTING:
            raise InputError("setting", setting, f"{SETTING}, the predictor's only one")
        started = time.perf_counter()
        return self._predictor.predict(payloads), time.perf_counter() - started

    def update(self, value: Any) -> None:
        raise InputError("predictor", value, "left as it is: a new version runs in a new process")

    def load(self, number: int) -> None:
        raise InputError("predictor", number, "left as it is: this process has loaded its only one")
