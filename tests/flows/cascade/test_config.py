"""What the cascade flow is told: lists of tables are checked as tables are, and the command line's short forms."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.flows.cascade.config import CascadeFlowConfig, LevelConfig, TaskConfig, read
from pliant.training.texts import Columns


def test_nothing_given_is_the_default_a_small_and_a_large_model_on_the_embedded_corpus():
    config = read()
    assert config == CascadeFlowConfig()
    assert [task.data for task in config.tasks] == ["docstrings:package"]
    assert [level.name for level in config.levels_of(config.tasks[0])] == ["small", "large"]


@pytest.mark.parametrize(
    ("values", "key", "nearest"),
    [
        ({"task": []}, "task", "tasks"),
        ({"tasks": [{"data": "docstrings:kind"}, {"nme": "x"}]}, "tasks[1].nme", "tasks[1].name"),
        ({"levels": [{"name": "a", "scratch": {"widht": 3}}]}, "levels[0].scratch.widht", "levels[0].scratch.width"),
        (
            {"tasks": [{"levels": [{"name": "a", "classifier": {"epoch": 1}}]}]},
            "tasks[0].levels[0].classifier.epoch",
            "tasks[0].levels[0].classifier.epochs",
        ),
    ],
)
def test_an_unknown_key_within_a_list_of_tables_is_named_with_its_place(values, key, nearest):
    with pytest.raises(InputError) as error:
        read(overrides=values)
    assert f"key {key} in the given settings" in str(error.value)
    assert f"did you mean {nearest}?" in str(error.value)


def test_a_value_of_the_wrong_type_within_a_list_of_tables_is_told_with_its_place():
    with pytest.raises(InputError) as error:
        read(overrides={"levels": [{"name": "a", "classifier": {"epochs": 2.5}}]})
    assert "@ $.levels" in str(error.value)
    assert "epochs" in str(error.value)


def test_addresses_stand_for_tasks_and_may_carry_a_name():
    config = read(overrides={"data": ["docstrings:kind", "mine=json:a.jsonl"]})
    assert config.tasks[0] == TaskConfig("docstrings:kind")
    assert config.tasks[1].name == "mine"
    assert config.tasks[1].data.startswith("json:")


@pytest.mark.parametrize(
    ("entry", "task"),
    [
        ("csv:date=2024/x.csv", TaskConfig("csv:date=2024/x.csv")),
        ("a=csv:date=2024/b=1.csv", TaskConfig("csv:date=2024/b=1.csv", "a")),
        ("a=docstrings:kind", TaskConfig("docstrings:kind", "a")),
    ],
)
def test_an_equals_sign_in_a_path_is_no_name(entry, task):
    assert read(overrides={"data": [entry]}).tasks == (task,)


def test_columns_and_a_regression_are_named_in_a_table():
    values = {"tasks": [{"data": "csv:a.csv", "columns": {"text": "body", "label": "stars", "regression": True}}]}
    assert read(overrides=values).tasks[0].columns == Columns("body", None, "stars", True)


def test_one_address_without_brackets_is_refused_and_not_taken_for_its_letters():
    with pytest.raises(InputError, match=r"a list of \[NAME=\]ADDRESS"):
        read(overrides={"data": "docstrings:kind"})


def test_a_limit_counts_for_every_task():
    config = read(overrides={"data": ["docstrings:kind", "docstrings:package"], "limit": 50})
    assert [task.limit for task in config.tasks] == [50, 50]


def test_a_tasks_own_levels_take_the_place_of_the_flows():
    config = read(overrides={"tasks": [{"levels": [{"name": "only", "start": "hub:some/model"}]}, {"name": "other"}]})
    assert config.levels_of(config.tasks[0]) == (LevelConfig("only", "hub:some/model"),)
    assert config.levels_of(config.tasks[1]) == config.levels


@pytest.mark.parametrize("levels", [[], [{"name": "a"}, {"name": "a"}]])
def test_no_level_or_two_of_one_name_are_refused(levels):
    with pytest.raises(InputError, match="at least one, each of its own name"):
        read(overrides={"levels": levels})


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden"])
def test_a_name_that_could_not_name_a_folder_is_refused(name):
    for values in ({"levels": [{"name": name}]}, {"tasks": [{"name": name}]}):
        with pytest.raises(InputError, match="letters, digits"):
            read(overrides=values)


def test_more_tokens_than_the_model_has_positions_are_refused_before_it_is_trained():
    with pytest.raises(InputError, match="max_length of level a is 128, but must be at most"):
        read(overrides={"levels": [{"name": "a", "scratch": {"positions": 64}}]})


def test_a_file_is_read_with_its_lists_of_tables(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[tasks]]\ndata = "docstrings:kind"\nlimit = 9\n[[levels]]\nname = "one"\n[levels.scratch]\nwidth = 32\n'
    )
    config = read(path)
    assert (config.tasks[0].limit, config.levels[0].scratch.width) == (9, 32)
