"""What flows are told: exact types, no unknown key, limits, short forms of the command line, and files."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.errors import InputError
from pliant.flows.bins.config import StreamConfig
from pliant.flows.bins.config import read as bins
from pliant.flows.cascade.config import LevelConfig, TaskConfig
from pliant.flows.cascade.config import read as cascade
from pliant.flows.packing.config import read as packing
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.config import read as tokens
from pliant.training.texts import Columns

READERS = {"tokens": tokens, "bins": bins, "cascade": cascade, "packing": packing}
CLASSIFIER = {"levels": [{"name": "a", "classifier": {"epochs": 2.5}}]}


def within(system: str, key: str, value: Any) -> InputError:
    """Return what the reader of a system says to a value under a key such as `edges.most`."""
    values: Any = value
    for step in reversed(key.split(".")):
        values = [values] if step == "0" else {step: values}
    with pytest.raises(InputError) as error:
        READERS[system](overrides=values)
    return error.value


@pytest.mark.parametrize(
    ("system", "key", "place", "nearest"),
    [
        ("tokens", "bakbone", "bakbone", "backbone"),
        ("tokens", "latency.timer.warm_up", "latency.timer.warm_up", "latency.timer.warmup"),
        ("bins", "streams.0.encodr", "streams[0].encodr", "streams[0].encoder"),
        (
            "cascade",
            "tasks.0.levels.0.classifier.epoch",
            *("tasks[0].levels[0].classifier." + n for n in ("epoch", "epochs")),
        ),
        ("cascade", "levels.0.scratch.widht", "levels[0].scratch.widht", "levels[0].scratch.width"),
        ("packing", "plan.level", "plan.level", "plan.levels"),
    ],
)
def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_one(system, key, place, nearest):
    error = within(system, key, 1)
    assert error.field == f"key {place} in the given settings" and f"did you mean {nearest}?" in error.limit


@pytest.mark.parametrize(
    ("system", "key", "value", "place"),
    [
        ("tokens", "task.epochs", "2", "task.epochs"),
        ("tokens", "task", 5, "task"),
        ("tokens", "threads", True, "threads"),
        ("tokens", "data", [3], "data[0]"),
        ("tokens", "data", "digits:digit", "data"),
        ("tokens", "foundation.options.img_size", [16], "foundation.options.img_size"),
        ("tokens", "limit", 2.7, "limit"),
        ("tokens", "gate.seeds", 0, "gate.seeds"),
        ("tokens", "feedback.days", float("inf"), "feedback.days"),
        ("tokens", "feedback", {"least": 5, "most": 4}, "feedback.most"),
        ("tokens", "latency.gammas", [-3, 0, 2, 16], "latency.gammas"),
        ("cascade", "levels.0.start", "hub:x", "levels[0].name"),
        ("cascade", "levels.0", CLASSIFIER["levels"][0], "levels[0].classifier.epochs"),
        ("cascade", "levels.0", {"name": "a", "start": "keras:x"}, "start of level a"),
        ("cascade", "levels.0", {"name": "a", "scratch": {"positions": 64}}, "classifier.max_length of level a"),
        ("cascade", "levels", [], "levels"),
        ("cascade", "levels", [{"name": "a"}, {"name": "a"}], "levels"),
        ("cascade", "levels.0.name", "../up", "name of a level"),
        *(("cascade", "levels.0.name", name, "name of a level") for name in ("bag", "exit12")),
        ("cascade", "distil.exits", [2, 1], "exits"),
        ("cascade", "tasks.0.name", ".hidden", "name of a task"),
        ("cascade", "gate.confidence", 1.0, "gate.confidence"),
        ("cascade", "learn.rows", 1, "learn.rows"),
        ("cascade", "seed", -1, "seed"),
        ("cascade", "arithmetic.tolerance", 1.0, "arithmetic.tolerance"),
        ("cascade", "outputs.execution.precision", "bfloat16", "outputs.execution.precision"),
        ("bins", "streams", [], "streams"),
        ("bins", "streams.0.encoder", "keras:x", "encoder"),
        ("bins", "streams.0.lengths", ["journal:"], "lengths"),
        ("bins", "streams.0.lengths", [], "lengths"),
        ("bins", "streams.0.slo", 0.0, "streams[0].slo"),
        ("bins", "streams.0.name", "encoder-x", "name of a stream"),
        ("bins", "edges.count", "all", "edges.count"),
        ("bins", "edges.count", -1, "edges.count"),
        ("bins", "edges.most", 0, "edges.most"),
        ("bins", "edges.batches", [2, 4], "edges.batches"),
        ("bins", "engine.engine", "tensorrt", "engine.engine"),
        ("bins", "engine.tried", ["tensorrt"], "engine.tried[0]"),
        ("bins", "placement", "own", "placement"),
        ("bins", "threads", 0, "threads"),
        ("bins", "embedded.scratch.positions", 32, "embedded.classifier.max_length"),
        ("packing", "name", "../up", "name"),
        ("packing", "name", "generator-mine", "name"),
        ("packing", "generator", "mine", "generator"),
        ("packing", "precision", "int8", "precision"),
        ("packing", "limit", 5, "lengths.requests"),
        ("packing", "lengths.held_out", 1.0, "lengths.held_out"),
        ("packing", "lengths.temperature", -1.0, "lengths.temperature"),
        ("packing", "memory.megabytes", 0, "memory.megabytes"),
        ("packing", "plan.levels", [], "plan.levels"),
        ("packing", "plan.levels", [-9.0], "plan.levels[0]"),
        ("packing", "retrain", {"least": 50, "latest": 40}, "retrain.least"),
        ("packing", "retrain.least", 19, "retrain.least"),
        ("packing", "reference.requests", 0, "reference.requests"),
        ("packing", "embedded.width", 13, "width"),
        ("packing", "data", ["a:b", "c:d"], "data"),
    ],
)
def test_a_value_of_the_wrong_type_or_beyond_its_limit_is_told_with_its_place(system, key, value, place):
    assert within(system, key, value).field == place


def test_options_that_lack_a_size_are_told_in_the_words_of_the_check():
    assert "without embed_dim, patch_size" in str(within("tokens", "foundation.options", {"img_size": 16}))
    options = {
        "img_size": 16,
        "patch_size": 2,
        "embed_dim": 24,
        "drop_rate": 0.1,
        "global_pool": "token",
        "qkv_bias": True,
    }
    assert tokens(overrides={"foundation": {"options": options}}).foundation.options == options


NAMES = ("../up", "a/b", "a b", ".hidden", "-front", "", "a\n", "a\0b", "é", "..", "encoder/x", "%2e%2e")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_cannot_be_part_of_a_models_is_refused(name):
    assert within("tokens", "data", [f"{name}=digits:digit"]).field == "name of a task"
    for system, key in (("cascade", "tasks.0.name"), ("cascade", "levels.0.name"), ("bins", "streams.0.name")):
        within(system, key, name)


def test_a_file_is_read_with_its_tables_beneath_what_lies_over_it_and_named_where_it_is_wrong(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('data = ["digits:loops"]\nseed = 1\n[latency]\nbatches = [1, 4]\n[latency.timer]\nwarmup = 0\n')
    config = tokens(path, {"seed": 2})
    assert (config.data, config.seed, config.latency.batches) == (("digits:loops",), 2, (1, 4))
    assert (config.latency.timer.warmup, config.latency.gammas) == (0, TokensFlowConfig().latency.gammas)
    path.write_text('[[tasks]]\nlimit = 9\n[[levels]]\nname = "one"\n[levels.scratch]\nwidth = 32\n')
    assert (cascade(path).tasks[0].limit, cascade(path).levels[0].scratch.width) == (9, 32)
    for content in (b"[reference]\nsecond = 1.0\n", b"seed = -1", b"seed = = 1", b"seed = 1 # \xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=str(path)):
            cascade(path)


@pytest.mark.parametrize(
    ("entry", "task"),
    [
        ("docstrings:kind", TaskConfig("docstrings:kind")),
        ("csv:date=2024/x.csv", TaskConfig("csv:date=2024/x.csv")),
        ("a=csv:date=2024/b=1.csv", TaskConfig("csv:date=2024/b=1.csv", "a")),
    ],
)
def test_addresses_stand_for_tasks_and_may_carry_a_name(entry, task):
    assert cascade(overrides={"data": [entry]}).tasks == (task,)


def test_short_forms_stand_for_every_task_or_stream():
    assert [task.limit for task in cascade(overrides={"data": ["docstrings:kind"] * 2, "limit": 50}).tasks] == [50, 50]
    config = bins(overrides={"data": ["docstrings:kind", "mine=json:a.jsonl"], "limit": 50, "slo": 0.4})
    assert [(s.data, s.name, s.limit, s.slo) for s in config.streams] == [
        ("docstrings:kind", None, 50, 0.4),
        ("json:a.jsonl", "mine", 50, 0.4),
    ]
    config = bins(overrides={"encoder": "path:models/mini", "lengths": ["journal:j.jsonl", "data"]})
    assert config.streams == (StreamConfig("path:models/mini", lengths=("journal:j.jsonl", "data")),)
    made = packing(overrides={"data": ["mine=parquet:a.parquet"], "limit": 50, "predictor": "path:encoder"})
    assert (made.name, made.prompts, made.lengths.requests) == ("mine", "parquet:a.parquet", 50)
    assert made.predictor.encoder == "path:encoder"
    for system, data in (("cascade", "docstrings:kind"), ("bins", "docstrings:kind"), ("packing", "parquet:a")):
        assert within(system, "data", data).field == "data"


def test_columns_and_a_tasks_own_levels_are_tables():
    columns = {"text": "body", "label": "stars", "regression": True}
    levels = [{"name": "only", "start": "hub:some/model"}]
    config = cascade(overrides={"tasks": [{"levels": levels, "columns": columns}, {"name": "other"}]})
    assert config.tasks[0].columns == Columns("body", None, "stars", True)
    assert config.levels_of(config.tasks[0]) == (LevelConfig("only", "hub:some/model"),)
    assert config.levels_of(config.tasks[1]) == config.levels


def test_an_engine_that_does_not_run_on_the_device_is_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr("pliant.flows.config.resolve_device", lambda name: name)  # as where there is a GPU
    for device, engine in (("cpu", "graphs"), ("cuda:0", "onnx")):
        with pytest.raises(InputError, match=f"engine is {engine}, but must be"):
            bins(overrides={"device": device, "engine": {"engine": engine}})
    assert bins(overrides={"device": "cuda:0", "engine": {"engine": "graphs"}}).engine.engine == "graphs"


@pytest.mark.parametrize(
    ("stream", "data", "name"),
    [
        (StreamConfig(), "package", "package"),
        (StreamConfig(name="mine"), "package", "mine"),
        (StreamConfig("path:/models/all-MiniLM/"), "package", "all-MiniLM"),
        (StreamConfig("hub:sentence-transformers/all-MiniLM-L6-v2"), None, "all-MiniLM-L6-v2"),
        (StreamConfig("cascade:package"), None, "package"),
    ],
)
def test_a_stream_is_called_after_its_data_or_its_encoder(stream, data, name):
    assert stream.stream_name(data) == name
    assert stream.needs_data and not StreamConfig("path:x", lengths=("parquet:x",)).needs_data


@pytest.mark.parametrize(
    ("generator", "name"),
    [("path:models/tales/", "tales"), ("hub:someone/Some-Model_1.5", "Some-Model_1.5"), ("hub:a b", "a-b")],
)
def test_a_generator_from_outside_gives_the_model_its_name(generator, name):
    assert packing(overrides={"generator": generator}).name == name
    assert packing(overrides={"generator": generator, "name": "mine"}).name == "mine"
