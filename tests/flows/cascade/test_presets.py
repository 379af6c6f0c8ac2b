"""The cascade's presets in the repository are settings that the flow takes."""

from __future__ import annotations

import pytest

from flows.cascade.config import read
from tests.fixtures.places import PRESETS


@pytest.mark.parametrize("path", sorted(PRESETS.glob("cascade_*.toml")), ids=lambda path: path.stem)
def test_a_preset_is_read_and_its_tasks_and_levels_have_names_of_their_own(path):
    config = read(path)
    names = [task.name or task.data for task in config.tasks]
    assert len(set(names)) == len(names) >= 3
    assert all(len(config.levels_of(task)) >= 3 for task in config.tasks)


def test_on_a_cpu_the_embedded_corpus_needs_no_download_and_levels_ascend_in_size():
    config = read(PRESETS / "cascade_cpu.toml")
    assert all(task.data.startswith("docstrings:") for task in config.tasks)
    assert {level.start for level in config.levels} == {"scratch"}
    sizes = [level.scratch.layers * level.scratch.width**2 for level in config.levels]
    assert sizes == sorted(sizes)


def test_the_small_models_of_the_pretrained_encoder_are_its_first_layers():
    config = read(PRESETS / "cascade_minilm.toml")
    assert len({level.start for level in config.levels}) == 1
    assert [level.classifier.layers for level in config.levels] == [1, 2, None]
