"""Packing's presets in the repository are settings that the flow takes."""

from __future__ import annotations

import pytest

from flows.packing.config import PackingFlowConfig, read
from tests.fixtures.places import PRESETS


@pytest.mark.parametrize("path", sorted(PRESETS.glob("packing_*.toml")), ids=lambda path: path.stem)
def test_a_preset_is_read_and_observes_more_than_the_default(path):
    config, default = read(path), PackingFlowConfig()
    assert config.lengths.requests > default.lengths.requests
    assert config.reference.requests > default.reference.requests
    assert config.plan == default.plan


def test_on_a_cpu_nothing_is_downloaded():
    config = read(PRESETS / "packing_cpu.toml")
    assert (config.generator, config.prompts, config.predictor.encoder) == ("embedded", "docstrings", "embedded")


def test_on_a_gpu_the_pages_follow_from_what_it_has_free():
    config = read(PRESETS / "packing_gpu.toml")
    assert config.device == "cuda"
    assert config.memory.follows_device
