"""The presets in the repository are settings that the flow takes."""

from __future__ import annotations

import pytest

from flows.tokens.config import TokensFlowConfig, read
from tests.fixtures.places import PRESETS

TASKS = ["cifar10", "tinyimagenet100", "eurosat"]


@pytest.mark.parametrize("name", ["tokens_cpu", "tokens_cpu_quick", "tokens_gpu"])
def test_a_preset_is_read_and_names_the_three_tasks_and_the_rates_to_try(name):
    config = read(PRESETS / f"{name}.toml")
    assert [entry.partition("=")[0] for entry in config.data] == TASKS
    assert len(set(config.task.prompt_rates)) >= 3
    assert config.latency == TokensFlowConfig().latency


@pytest.mark.parametrize("name", ["tokens_cpu", "tokens_cpu_quick"])
def test_on_a_cpu_the_foundation_comes_from_the_flow_and_leaves_tokens_enough_to_merge(name):
    config = read(PRESETS / f"{name}.toml")
    assert (config.backbone, config.device, config.foundation.upstream_classes) == ("embedded", "cpu", 100)
    assert config.upstream is not None
    assert config.upstream in "".join(config.data)
    grid = config.foundation.options["img_size"] // config.foundation.options["patch_size"]
    assert grid**2 + 1 > 3 * -min(config.latency.gammas)


def test_on_a_gpu_training_is_as_published():
    config = read(PRESETS / "tokens_gpu.toml")
    assert (config.backbone, config.device) == ("timm:vit_base_patch16_224", "cuda")
    assert (config.task.epochs, config.task.batch) == (50.0, 32)
    assert min(config.task.prompt_rates) < 0.002 < max(config.task.prompt_rates)
