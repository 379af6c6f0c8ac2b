"""The parts of `pliant bench packing` that run vLLM."""

from __future__ import annotations

from benchmarks.harness import Context, Measured, need, table
from benchmarks.packing import real_model
from benchmarks.packing.chats import live_packing
from benchmarks.packing.vllm import comparison
from benchmarks.packing.vllm import contest as vllm
from benchmarks.packing.vllm import faults as vllm_faults
from pliant.errors import RegistryError


def contest(context: Context) -> Measured:
    """Compare schedulers with scarce memory."""
    return _compared(context, vllm.QUICK, vllm.FULL)


def ample(context: Context) -> Measured:
    """Compare schedulers with ample memory."""
    return _compared(context, vllm.AMPLE, vllm.AMPLE_FULL)


def others(context: Context) -> Measured:
    """Compare with other schedulers."""
    return _compared(context, vllm.OTHERS, vllm.OTHERS_FULL)


def faults(context: Context) -> Measured:
    """Strike the process of vLLM while it streams."""
    need(vllm_faults.lacking())
    try:
        name = live_packing().name
    except RegistryError as error:
        need(f"needs a champion: pliant train packing ({error})")
    with context.stage("streams of vLLM, whose process is struck") as progress:
        result = vllm_faults.measure(name, progress)
    table("streamed chats of the service, engine vLLM", vllm_faults.HEADINGS, [each.row() for each in result.struck])
    return result.targets(), result.plain()


def _compared(context: Context, quick: vllm.VllmConfig, full: vllm.VllmConfig) -> Measured:
    need(vllm.missing())
    config = full if context.full else quick
    predictor = real_model.predictor()
    with context.stage(f"schedulers in vLLM, in turns: {config.memory.name}") as progress:
        result = vllm.measure(config, predictor, progress)
    table("vLLM on this machine, medians over the repeats", comparison.HEADINGS, result.table())
    return result.targets(), result.plain()
