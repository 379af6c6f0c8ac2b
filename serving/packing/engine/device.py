"""Loads and starts an engine in its process."""

from __future__ import annotations

from pliant.packing.artifact import Generator
from pliant.packing.engine.model import in_precision
from pliant.packing.engine.runtime import Engine
from pliant.precision import check_precision
from registry import codec
from serving.packing.engine.journal import recorder
from serving.packing.messages import Deliver, EngineBuild
from serving.workers.on_device import prepare, reporting_memory


def build(spec: EngineBuild, deliver: Deliver) -> Engine:
    """Return a started engine.

    Raises `DigestError` if the generator has changed since it was published, `DeviceError` on another class of device than
    was profiled, `WorkerError` if the device lacks memory, `InputError` if the model cannot be shared by the processes or
    the device lacks the precision of the plan.
    """
    prepare(spec.plan)
    plan = spec.plan
    check_precision(spec.precision, plan.device)
    generator = in_precision(codec.load(Generator, spec.folder, spec.digest), spec.precision)
    journal = recorder(spec.journal) if spec.journal else None
    with reporting_memory(plan.device):
        engine = Engine(
            generator, spec.memory, spec.rules, deliver, plan.device, plan.threads or 1,
            journal=journal, processes=spec.processes,
        )  # fmt: skip
        engine.start()
    return engine
