"""Which engine `pliant profile packing` measures, beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.flows.packing.config import PackingFlowConfig
    from pliant.flows.packing.stages import Measured
    from pliant.packing.artifact import Generator
    from pliant.progress import Progress


def options(parser: ArgumentParser) -> None:
    """Add the options of `pliant profile packing`."""
    from pliant.serving.packing.settings import ENGINES

    text = "whose iterations are measured: pliant (default), or vllm, which docs/vllm.md says how to install"
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help=text)


def arguments(args: Namespace) -> dict[str, Any]:
    """Return what `reprofile` takes besides. Raises `PliantError` where the engine is not installed."""
    if args.engine != "vllm":
        return {}
    from pliant.flows import settings
    from pliant.serving.packing.vllm.engine import interpreter_of

    home = settings.read().home
    return {"measure": partial(_measure, home, interpreter_of(home))}


def _measure(
    home: Path, interpreter: Any, config: PackingFlowConfig, generator: Generator, progress: Progress
) -> Measured:
    """Measure vLLM's iterations with the memory of the settings, in pages that vLLM has. It moves nothing to the host."""
    from pliant.flows.config import configured_class
    from pliant.flows.packing.stages import Measured, fitting_memory, on_device, token_bytes
    from pliant.packing.scheduling.iteration_cost import fit
    from pliant.profiling.packing.steps import states
    from pliant.serving.packing.vllm.measuring import AHEAD, MeasuringSpec, measure
    from pliant.serving.packing.vllm.model_folder import pages_of, write

    generator = on_device(generator, config.device)
    memory = replace(pages_of(fitting_memory(config, generator), config.device), host_pages=0)
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="vllm-profile-", dir=home) as folder:
        spec = MeasuringSpec(
            folder=write(generator, Path(folder)),
            context=generator.context,
            precision=generator.precision,
            memory=memory,
            token_bytes=token_bytes(generator.config, generator.precision),
            device=config.device,
            threads=config.threads,
            states=tuple(states(config.steps, memory, generator.context, AHEAD)),
            prompts=config.steps.prompts,
            warmup=config.steps.warmup,
            repeats=config.steps.repeats,
            log=logs / "vllm-profile.log",
        )
        points = measure(interpreter, spec, progress)
    cost = fit(points)
    return Measured(configured_class(config), memory, tuple(points), cost, generator.precision, "vllm")
