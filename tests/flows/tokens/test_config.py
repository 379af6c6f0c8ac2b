"""What the tokens flow is told: every mistake is named with its place."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.flows.tokens.config import TokensFlowConfig, read


@pytest.mark.parametrize(
    ("values", "key", "nearest"),
    [
        ({"bakbone": "embedded"}, "bakbone", "backbone"),
        ({"task": {"epoch": 3}}, "task.epoch", "task.epochs"),
        ({"latency": {"timer": {"warm_up": 1}}}, "latency.timer.warm_up", "latency.timer.warmup"),
    ],
)
def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_one(values, key, nearest):
    with pytest.raises(InputError) as error:
        read(overrides=values)
    assert f"key {key} in the given settings" in str(error.value)
    assert f"did you mean {nearest}?" in str(error.value)


@pytest.mark.parametrize("name", ["../up", "a b", "", ".hidden", "a/b"])
def test_a_name_that_cannot_be_part_of_a_models_is_refused(name):
    with pytest.raises(InputError, match="name of a task is"):
        read(overrides={"data": [f"{name}=digits:digit"]})


def test_an_unknown_key_in_a_file_is_named_with_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[reference]\nsecond = 1.0\n")
    with pytest.raises(InputError) as error:
        read(path)
    assert f"reference.second in {path}" in str(error.value)
    assert "reference.seconds?" in str(error.value)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"task": {"epochs": "two"}}, "$.task.epochs"),
        ({"task": {"epochs": "2"}}, "$.task.epochs"),
        ({"task": 5}, "$.task"),
        ({"threads": True}, "$.threads"),
        ({"data": [3]}, "$.data"),
        ({"reference": {"urgent": [0.5]}}, "$.reference.urgent"),
        ({"foundation": {"options": {"img_size": [16]}}}, "$.foundation.options['img_size']"),
        ({"foundation": {"options": 16}}, "$.foundation.options"),
        ({"limit": 2.7}, "$.limit"),
        ({"data": "digits:digit"}, "$.data"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_its_place(values, place):
    with pytest.raises(InputError) as error:
        read(overrides=values)
    assert f"@ {place}," in str(error.value)


def test_a_whole_number_will_do_for_a_number_and_gives_equal_settings():
    assert read(overrides={"task": {"epochs": 2}}) == read(overrides={"task": {"epochs": 2.0}})


def test_options_of_the_foundation_can_be_set():
    """They once could not: their values may be of several types, which cattrs refuses by itself."""
    options = {
        "img_size": 16,
        "patch_size": 2,
        "embed_dim": 24,
        "drop_rate": 0.1,
        "global_pool": "token",
        "qkv_bias": True,
    }
    assert read(overrides={"foundation": {"options": options}}).foundation.options == options


def test_a_file_is_read_with_its_tables(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('data = ["digits:loops"]\nlimit = 50\n[latency]\nbatches = [1, 4]\n[latency.timer]\nwarmup = 0\n')
    config = read(path)
    assert (config.data, config.limit, config.latency.batches, config.latency.timer.warmup) == (
        ("digits:loops",),
        50,
        (1, 4),
        0,
    )
    assert config.latency.gammas == TokensFlowConfig().latency.gammas


def test_overrides_lie_over_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('seed = 1\ndevice = "cuda"\n')
    config = read(path, {"seed": 2})
    assert (config.seed, config.device) == (2, "cuda")


@pytest.mark.parametrize("content", [b"seed = = 1", b"seed = 1 # \xff\xfe"])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match="readable TOML file") as error:
        read(path)
    assert str(path) in str(error.value)


def test_options_that_lack_a_size_are_told_in_the_words_of_the_check():
    with pytest.raises(InputError, match=r"^foundation\.options is without embed_dim, patch_size, but must be"):
        read(overrides={"foundation": {"options": {"img_size": 16}}})


def test_a_gamma_that_is_measured_and_not_trained_is_refused_before_anything_is_done():
    with pytest.raises(
        InputError, match=r"latency\.gammas is \[16\], but must be 0, below 0, or one of task\.gammas, 2, 4, 8"
    ):
        read(None, {"latency": {"gammas": [-3, 0, 2, 16]}})
