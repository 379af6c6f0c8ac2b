"""The cascade's presets in the repository are settings that the flow takes."""

from __future__ import annotations

import pytest

from flows.cascade.config import read
from tests.fixtures.places import PRESETS


@pytest.mark.parametrize("path", sorted(PRESETS.glob("cascade_*.toml")), ids=lambda path: path.stem)
def test_a_preset_is_read_and_its_tasks_and_levels_have_names_of_their_own(path):
    told = read(path)
    names = [task.name or task.data for task in told.tasks]
    assert len(set(names)) == len(names) >= 3
    assert all(len(told.of(task)) >= 3 for task in told.tasks)


def test_on_a_cpu_the_embedded_corpus_needs_no_download_and_levels_ascend_in_size():
    told = read(PRESETS / "cascade_cpu.toml")
    assert all(task.data.startswith("docstrings:") for task in told.tasks)
    assert {level.start for level in told.levels} == {"scratch"}
    sizes = [level.scratch.layers * level.scratch.width**2 for level in told.levels]
    assert sizes == sorted(sizes)


def test_the_small_models_of_the_pretrained_encoder_are_its_first_layers():
    told = read(PRESETS / "cascade_minilm.toml")
    assert len({level.start for level in told.levels}) == 1
    assert [level.classifier.layers for level in told.levels] == [1, 2, None]
