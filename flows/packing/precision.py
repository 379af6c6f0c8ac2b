"""In which precision a generator is stored and served, and in which a device runs one that is stored in another.

Knows no Prefect and no registry.
"""

from __future__ import annotations

from flows.packing.config import PackingFlowConfig
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import in_precision
from pliant.precision import has_bfloat16, usable_precision
from profiling.packing.precision import fastest

DEFAULT, LOW = "float32", "bfloat16"


def known_precision(config: PackingFlowConfig) -> str:
    """Return the precision that the generator will have, as far as that is known without measuring; else empty.

    Of "auto" it is known where the device lacks bfloat16, and on a GPU that has it.
    """
    if config.precision != "auto":
        return config.precision
    if not has_bfloat16(config.device):
        return DEFAULT
    return LOW if config.device.startswith("cuda") else ""


def converted(generator: Generator, config: PackingFlowConfig) -> tuple[Generator, dict[str, float]]:
    """Return the generator in the precision to serve it in, and the seconds by which that was chosen, if it was."""
    precision = known_precision(config)
    seconds: dict[str, float] = {}
    if not precision:
        precision, seconds = fastest(generator, (DEFAULT, LOW), config.lengths.sequences, config.threads)
    return in_precision(generator, precision), seconds


def on_device(generator: Generator, device: str) -> Generator:
    """Return the generator in the precision in which the device runs it: its own where the device has that natively."""
    return in_precision(generator, usable_precision(generator.precision, device))
