"""What a stage's key follows from, and what a stage refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.tokens import stages as tokens_stages
from flows.tokens.config import TokensFlowConfig, read
from flows.tokens.stages import foundation_key, load_data, profile_key, task_key
from pliant.errors import InputError
from pliant.progress import silent
from registry.store import FolderStore
from tests.fixtures.tokens.samples import tiny_backbone
from tests.fixtures.tokens.tiny import setting
from training.data import digits

BACKBONE = {"key": "tokens/backbone/x", "digest": "sha256:b"}
TASKS = [{"key": "tokens/task-digit/x", "digest": "sha256:t"}]


def tiny_config(**changes) -> TokensFlowConfig:
    return read(overrides=setting(**changes))


@pytest.fixture(scope="module")
def data():
    return digits("digit")


def keys(config: TokensFlowConfig, data) -> tuple[str, str, str]:
    return foundation_key(config, data), task_key(config, data, BACKBONE), profile_key(config, BACKBONE, TASKS)


def changed(config: TokensFlowConfig, other: TokensFlowConfig, data) -> list[str]:
    pairs = zip(("foundation", "task", "profile"), keys(config, data), keys(other, data), strict=True)
    return [stage for stage, a, b in pairs if a != b]


def test_equal_settings_give_equal_keys(data):
    assert changed(tiny_config(), tiny_config(), data) == []


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"foundation": {"images": 64}}, ["foundation"]),
        ({"foundation": {"augment": "crops"}}, ["foundation"]),
        ({"task": {"prompt_rates": [0.1]}}, ["task"]),
        ({"task": {"epochs": 0.1}}, ["task"]),
        ({"latency": {"batches": [1, 4]}}, ["profile"]),
        ({"latency": {"gammas": [-5, 0, 2]}}, ["task", "profile"]),  # a task's accuracy is measured at these gammas
        ({"reference": {"urgent": [0.1, 1.0]}}, ["profile"]),  # the rate rule follows from the urgent deadline
        ({"gate": {"seeds": 5}}, []),
    ],
)
def test_a_changed_setting_changes_the_keys_of_what_depends_on_it(data, changes, stages):
    before = {key: value for key, value in setting().items() if key not in changes}
    assert changed(read(overrides=before), read(overrides={**before, **changes}), data) == stages


def test_other_data_change_foundation_and_task(data):
    other = replace(data, fingerprint="sha256:other")
    assert foundation_key(tiny_config(), other) != foundation_key(tiny_config(), data)
    assert task_key(tiny_config(), other, BACKBONE) != task_key(tiny_config(), data, BACKBONE)


def test_another_backbone_changes_task_and_profile(data):
    other = {**BACKBONE, "digest": "sha256:c"}
    assert task_key(tiny_config(), data, other) != task_key(tiny_config(), data, BACKBONE)
    assert profile_key(tiny_config(), other, TASKS) != profile_key(tiny_config(), BACKBONE, TASKS)


def test_other_tasks_change_the_profile_and_their_order_does_not():
    more = [*TASKS, {"key": "tokens/task-loops/x", "digest": "sha256:u"}]
    assert profile_key(tiny_config(), BACKBONE, more) != profile_key(tiny_config(), BACKBONE, TASKS)
    assert profile_key(tiny_config(), BACKBONE, more) == profile_key(tiny_config(), BACKBONE, more[::-1])


def test_a_weights_file_is_known_by_its_content(tmp_path, data):
    """New weights under an old name once met the old backbone's cached result."""
    path = tmp_path / "weights.safetensors"
    config = tiny_config(backbone=f"file:vit_tiny_patch16_224:{path}")
    path.write_bytes(b"one")
    first = foundation_key(config, data)
    path.write_bytes(b"two")
    assert foundation_key(config, data) != first


def test_the_foundation_sees_the_first_tasks_data_where_nothing_else_is_said(data):
    loaded = load_data(tiny_config())
    assert tokens_stages.load_upstream(tiny_config(), loaded) is loaded[0]
    upstream = tokens_stages.load_upstream(tiny_config(upstream="digits:stroke"), loaded)
    assert upstream.name == "stroke"
    assert foundation_key(tiny_config(), upstream) != foundation_key(tiny_config(), data)


def test_a_task_without_a_sweep_notes_the_rate_that_was_set(swept):
    _, plain = swept
    assert plain["prompt_rate"] == TokensFlowConfig().task.prompt_rate
    assert plain["seconds"] > 0
    assert "sweep" not in plain


def test_a_sweep_is_noted_and_its_best_rate_is_what_the_task_is_trained_with(swept):
    noted, _ = swept
    rates, accuracy = noted["sweep"]["rates"], noted["sweep"]["accuracy"]
    assert rates == [0.01, 0.1]
    assert noted["prompt_rate"] == rates[accuracy.index(max(accuracy))]


@pytest.fixture(scope="module")
def swept(data, tmp_path_factory):
    """Notes of a task trained with a sweep, and of one without."""
    store, tasks = FolderStore(tmp_path_factory.mktemp("store")), []
    digest = store.save("backbone", tiny_backbone())
    short = {"gammas": [2], "epochs": 0.05, "head_steps": 5, "trial_images": 32}
    for key, more in (("swept", {"prompt_rates": [0.01, 0.1]}), ("plain", {})):
        config = tiny_config(task=short | more, latency={"gammas": [0, 2]})
        backbone = {"key": "backbone", "digest": digest}
        tasks.append(tokens_stages.make_task(config, data, backbone, key, store, (silent, silent))["notes"])
    return tasks


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(InputError, match="digit, digit") as refused:
        load_data(tiny_config(data=["digits:digit", "digit=digits:loops"]))
    assert "NAME=ADDRESS" in str(refused.value)


def test_no_task_at_all_is_refused():
    with pytest.raises(InputError, match="at least one task"):
        load_data(tiny_config(data=[]))


def test_an_address_can_be_given_a_name():
    loaded = load_data(tiny_config(data=["digits:digit", "holes=digits:loops"]))
    assert [(data.name, len(data.classes)) for data in loaded] == [("digit", 10), ("holes", 3)]


def test_a_name_changes_the_task_and_not_the_foundation(data):
    renamed = replace(data, name="numeral")
    assert foundation_key(tiny_config(), renamed) == foundation_key(tiny_config(), data)
    assert task_key(tiny_config(), renamed, BACKBONE) != task_key(tiny_config(), data, BACKBONE)


def test_an_unknown_kind_of_backbone_is_refused_with_the_known_ones(tmp_path, data):
    config = tiny_config(backbone="keras:vit")
    with pytest.raises(InputError, match="keras:vit") as refused:
        tokens_stages.make_foundation(config, data, "tokens/backbone/x", FolderStore(Path(tmp_path)), silent)
    assert "embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH" in str(refused.value)
