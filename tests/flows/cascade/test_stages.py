"""What the cascade flow's stages' keys follow from, and what a stage refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.cascade.config import CascadeFlowConfig, read
from flows.cascade.stages import latencies_key, load_data, outputs_key, plan_key, train_key
from pliant.errors import InputError
from tests.fixtures.cascade.tiny import setting, write_texts
from training.loading import POINTER

LEVELS = {name: {"key": f"cascade/{name}", "digest": f"sha256:{name}"} for name in ("small", "large")}
OUTPUTS, TEST, LATENCIES = ({"key": f"cascade/{x}", "digest": f"sha256:{x}"} for x in ("outputs", "test", "latencies"))
STAGES = ("small", "large", "outputs", "test", "latencies", "plan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    write_texts(path)
    return path


@pytest.fixture(scope="module")
def data(folder):
    return load_data(read(overrides=setting(folder)))[0]


def keys(config: CascadeFlowConfig, data) -> tuple[str, ...]:
    levels = config.levels_of(config.tasks[0])
    return (
        *(train_key(level, data) for level in levels),
        *(outputs_key(config, data, LEVELS, split) for split in ("profiling", "test")),
        latencies_key(config, data, LEVELS),
        plan_key(config, data, OUTPUTS, TEST, LATENCIES),
    )


def changed(keys: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
    return [stage for stage, a, b in zip(STAGES, keys, other, strict=True) if a != b]


def test_equal_settings_give_equal_keys_and_no_two_stages_share_one(folder, data):
    config = read(overrides=setting(folder))
    assert changed(keys(config, data), keys(read(overrides=setting(folder)), data)) == []
    assert len(set(keys(config, data))) == len(STAGES)


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"latency": {"batches": [1, 4]}}, ["latencies"]),
        ({"plan": {"drop": 0.02}}, ["plan"]),
        ({"gate": {"seeds": 5}}, []),
        ({"reference": {"seconds": 9.0}}, []),
    ],
)
def test_a_changed_setting_changes_the_keys_of_what_depends_on_it(folder, data, changes, stages):
    before, after = read(overrides=setting(folder)), read(overrides=setting(folder, **changes))
    assert changed(keys(before, data), keys(after, data)) == stages


def test_a_changed_level_changes_its_own_key_alone(folder, data):
    told = setting(folder)
    small, large = told["levels"]
    more = {**large, "classifier": {**large["classifier"], "epochs": 3}}
    before, after = read(overrides=told), read(overrides={**told, "levels": [small, more]})
    assert changed(keys(before, data), keys(after, data)) == ["large"]


def test_other_data_change_all_that_is_made_of_them_and_not_the_latencies(folder, data):
    config = read(overrides=setting(folder))
    other = replace(data, fingerprint="sha256:other")
    assert changed(keys(config, data), keys(config, other)) == ["small", "large", "outputs", "test"]


def test_another_classifier_changes_outputs_and_latencies(folder, data):
    config = read(overrides=setting(folder))
    other = LEVELS | {"small": {"key": "cascade/small", "digest": "sha256:new"}}
    assert outputs_key(config, data, other, "test") != outputs_key(config, data, LEVELS, "test")
    assert latencies_key(config, data, other) != latencies_key(config, data, LEVELS)


@pytest.mark.parametrize("part", range(3))
def test_a_plan_follows_from_both_outputs_and_the_latencies(folder, data, part):
    config, told = read(overrides=setting(folder)), [OUTPUTS, TEST, LATENCIES]
    before = plan_key(config, data, *told)
    told[part] = {"key": "cascade/x", "digest": "sha256:x"}
    assert plan_key(config, data, *told) != before


def test_a_model_in_a_folder_is_known_by_its_files(folder, data, tmp_path):
    """New weights under an old name must not meet the old model's cached result."""
    level = replace(read(overrides=setting(folder)).levels[0], start=f"path:{tmp_path}")
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = train_key(level, data)
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert train_key(level, data) != first


def test_two_tasks_of_one_name_are_refused(folder):
    address = f"json:{folder / 'things.jsonl'}"
    with pytest.raises(InputError, match="things, things") as refused:
        load_data(read(overrides={"data": [address, address]}))
    assert "NAME=ADDRESS" in str(refused.value)


def test_a_file_whose_name_cannot_be_a_tasks_needs_another_one(folder, tmp_path):
    file = tmp_path / "my things.jsonl"
    file.write_bytes((folder / "things.jsonl").read_bytes())
    with pytest.raises(InputError, match="name of a task is 'my things'"):
        load_data(read(overrides={"data": [f"json:{file}"]}))


def test_a_spoilt_start_of_the_last_level_is_refused_before_anything_is_trained(folder, tmp_path):
    level = {"name": "large", "start": f"path:{tmp_path}"}
    (tmp_path / "model.safetensors").write_bytes(POINTER)
    values = {**setting(folder), "levels": [{"name": "small", "start": "scratch"}, level]}
    with pytest.raises(InputError, match=r"model\.safetensors is a pointer of Git LFS"):
        load_data(read(overrides=values))


def test_no_task_at_all_is_refused():
    with pytest.raises(InputError, match="at least one task"):
        load_data(read(overrides={"tasks": []}))
