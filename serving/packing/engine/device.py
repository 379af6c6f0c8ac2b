"""An engine in its process: load, start. Knows the engine's runtime; knows nothing of messages, texts or requests."""

from __future__ import annotations

from pliant.packing.artifact import Generator
from pliant.packing.engine.runtime import Engine
from registry import codec
from serving.packing.engine.journal import recorder
from serving.packing.messages import Deliver, EngineBuild
from serving.workers.on_device import prepare, room


def build(told: EngineBuild, deliver: Deliver) -> Engine:
    """A started engine.

    Raises `DigestError` where the generator changed since it was published, `DeviceError` on another class of device than
    was profiled, `WorkerError` where the device has no room, `InputError` where the model cannot be shared as it was told.
    """
    prepare(told.plan)
    generator = codec.load(Generator, told.folder, told.digest)
    journal = recorder(told.journal) if told.journal else None
    plan = told.plan
    with room(plan.device):
        engine = Engine(
            generator, told.memory, told.rules, deliver, plan.device, plan.threads or 1,
            journal=journal, processes=told.processes,
        )  # fmt: skip
        engine.start()
    return engine
