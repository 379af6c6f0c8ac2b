"""The presets in the repository are settings that the flows take."""

from __future__ import annotations

import pytest

from pliant import systems
from pliant.flows.cascade.config import read as read_cascade
from pliant.flows.packing.config import read as read_packing
from pliant.flows.tokens.config import read as read_tokens
from tests.fixtures.places import PRESETS

PATHS = sorted(path for path in PRESETS.glob("*.toml") if path.stem.partition("_")[0] in systems.names())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_preset_is_read(path):
    part = systems.system(path.stem.partition("_")[0]).part("flows", "config")
    assert part.sizes(part.read(path))


@pytest.mark.parametrize("name", ["tokens_cpu", "tokens_cpu_quick"])
def test_on_a_cpu_the_foundation_comes_from_the_flow_and_leaves_tokens_enough_to_merge(name):
    config = read_tokens(PRESETS / f"{name}.toml")
    assert (config.backbone, config.device) == ("embedded", "cpu")
    assert config.upstream is not None and config.upstream in "".join(config.data)
    grid = config.foundation.options["img_size"] // config.foundation.options["patch_size"]
    assert grid**2 + 1 > 3 * -min(config.latency.gammas)


def test_on_a_cpu_texts_and_prompts_need_no_download_and_levels_ascend_in_size():
    cascade, packing = read_cascade(PRESETS / "cascade_cpu.toml"), read_packing(PRESETS / "packing_cpu.toml")
    assert all(task.data.startswith("docstrings:") for task in cascade.tasks)
    sizes = [level.scratch.layers * level.scratch.width**2 for level in cascade.levels]
    assert {level.start for level in cascade.levels} == {"scratch"} and sizes == sorted(sizes)
    assert (packing.generator, packing.prompts, packing.predictor.encoder) == ("embedded", "docstrings", "embedded")
