"""Packing's presets in the repository are settings that the flow takes."""

from __future__ import annotations

import pytest

from flows.packing.config import PackingFlowConfig, read
from tests.fixtures.places import PRESETS


@pytest.mark.parametrize("path", sorted(PRESETS.glob("packing_*.toml")), ids=lambda path: path.stem)
def test_a_preset_is_read_and_observes_more_than_the_default(path):
    told, default = read(path), PackingFlowConfig()
    assert told.lengths.requests > default.lengths.requests
    assert told.reference.requests > default.reference.requests
    assert told.plan == default.plan


def test_on_a_cpu_nothing_is_downloaded():
    told = read(PRESETS / "packing_cpu.toml")
    assert (told.generator, told.prompts, told.predictor.encoder) == ("embedded", "docstrings", "embedded")


def test_on_a_gpu_the_memory_is_told_in_megabytes():
    told = read(PRESETS / "packing_gpu.toml")
    assert told.device == "cuda"
    assert told.memory.megabytes
