"""The parts of `pliant bench packing` that run vLLM."""

from __future__ import annotations

from pliant.benchmarks.harness import Context, Measured, need, table
from pliant.benchmarks.packing import real_model
from pliant.benchmarks.packing.vllm import comparison
from pliant.benchmarks.packing.vllm import contest as vllm


def contest(context: Context) -> Measured:
    """Compare schedulers with scarce memory."""
    return _compared(context, vllm.QUICK, vllm.FULL)


def ample(context: Context) -> Measured:
    """Compare schedulers with ample memory."""
    return _compared(context, vllm.AMPLE, vllm.AMPLE_FULL)


def _compared(context: Context, quick: vllm.VllmConfig, full: vllm.VllmConfig) -> Measured:
    need(vllm.missing())
    config = full if context.full else quick
    predictor = real_model.predictor()
    with context.stage(f"schedulers in vLLM, in turns: {config.memory.name}") as progress:
        result = vllm.measure(config, predictor, progress)
    table("vLLM on this machine, medians over the repeats", comparison.HEADINGS, result.table())
    return result.targets(), result.plain()
