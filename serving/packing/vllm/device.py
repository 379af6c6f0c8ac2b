"""Loads and starts vLLM in the process of an engine, which runs in vLLM's own environment."""

from __future__ import annotations

from pliant.packing.artifact import Generator
from pliant.packing.vllm.model_folder import folder_of
from registry import codec
from serving.packing.engine.journal import recorder
from serving.packing.messages import Deliver, VllmBuild
from serving.packing.vllm.llm_engine import set_variables
from serving.packing.vllm.model_folder import write
from serving.packing.vllm.pages import pages_of
from serving.packing.vllm.running import VllmEngine


def build(spec: VllmBuild, deliver: Deliver) -> VllmEngine:
    """Return a started engine.

    Raises `DigestError` if the generator has changed since it was published, `InputError` for a memory that vLLM cannot
    use, and what vLLM raises.
    """
    generator = codec.load(Generator, spec.folder, spec.digest)
    memory, on_cpu = pages_of(spec.memory, spec.plan.device), spec.plan.device == "cpu"
    set_variables(memory, spec.token_bytes, spec.plan.device, spec.plan.threads)
    journal = recorder(spec.journal) if spec.journal else None
    folder = write(generator, folder_of(spec.home, spec.digest))
    engine = VllmEngine(folder, generator, memory, spec.rules, deliver, spec.precision, on_cpu, spec.processes, journal)
    engine.start()
    return engine
