"""`pliant profile packing --engine vllm`: whose iterations are measured, with which memory, in which states."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.cli.packing import measuring
from pliant.errors import PliantError
from pliant.flows.packing.config import MemoryConfig, PackingFlowConfig
from pliant.packing.scheduling.iteration_cost import Point
from pliant.profiling.packing.steps import StepsConfig
from pliant.progress import silent
from pliant.serving.packing.vllm import engine
from pliant.serving.packing.vllm import measuring as child
from pliant.training.packing.generator import load
from tests.fixtures.packing import tiny_llama


def chosen(*words: str):
    parser = ArgumentParser()
    measuring.options(parser)
    return measuring.arguments(parser.parse_args(words))


def test_without_vllm_the_command_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    with pytest.raises(PliantError, match=r"docs/vllm\.md"):
        chosen("--engine", "vllm")


def test_vllm_is_measured_in_its_own_pages_and_nothing_goes_to_the_host(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    monkeypatch.setattr(engine, "python_of", lambda _home: Path("python"))
    monkeypatch.setattr(engine, "environment_of", lambda _home: {})
    specs = []

    def measure(interpreter, spec, progress):
        assert (spec.folder / "config.json").is_file()
        specs.append(spec)
        return [Point(n, n, 10 * n, 0.1 * n) for n in range(1, 9)]

    monkeypatch.setattr(child, "measure", measure)
    generator = load(f"path:{tiny_llama.write(tmp_path / 'llama')}")
    memory = MemoryConfig(pages=40, page_tokens=16, host_pages=8, sequences=4, step_tokens=32)
    steps = StepsConfig(sequences=(1, 2), fills=(0.1,), warmup=0, repeats=1, prompts=(0.0,))
    config = replace(PackingFlowConfig(), memory=memory, steps=steps, threads=1)
    measured = chosen("--engine", "vllm")["measure"](config, generator, silent)
    (spec,) = specs
    assert (measured.engine, measured.memory) == ("vllm", spec.memory)
    assert (spec.memory.page_tokens, spec.memory.host_pages) == (32, 0)
    assert measured.steps.swap == 0 and float(measured.steps.seconds(4, 4, 40)) == pytest.approx(0.4)
    assert spec.states == ((1, 64), (2, 32))
    assert not spec.folder.exists(), "what was written for vLLM is removed"
