"""Loads and starts an engine in its process."""

from __future__ import annotations

from pliant.device import free_bytes, reporting_memory
from pliant.packing.artifact import Generator
from pliant.packing.engine.budget import check_fits
from pliant.packing.engine.model import in_precision
from pliant.packing.engine.runtime import Engine
from pliant.precision import check_precision
from pliant.registry import codec
from pliant.serving.packing.engine.journal import recorder
from pliant.serving.packing.messages import Deliver, EngineBuild
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
