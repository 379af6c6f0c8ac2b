"""What the bins flow is told: values are checked before anything is trained, and the command line's short forms."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.flows.bins.config import BinsFlowConfig, EdgesConfig, StreamConfig, read
from tests.fixtures.places import PRESETS


def test_nothing_given_is_the_default_one_stream_with_the_embedded_encoder():
    config = read()
    assert config == BinsFlowConfig()
    assert [stream.encoder for stream in config.streams] == ["embedded"]
    assert config.edges.count == "auto"


@pytest.mark.parametrize(
    ("values", "key", "nearest"),
    [
        ({"stream": []}, "stream", "streams"),
        ({"streams": [{"encodr": "embedded"}]}, "streams[0].encodr", "streams[0].encoder"),
        ({"edges": {"counts": 3}}, "edges.counts", "edges.count"),
        ({"embedded": {"classifier": {"epoch": 1}}}, "embedded.classifier.epoch", "embedded.classifier.epochs"),
    ],
)
def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_one(values, key, nearest):
    with pytest.raises(InputError) as error:
        read(overrides=values)
    assert f"key {key} in the given settings" in str(error.value)
    assert f"did you mean {nearest}?" in str(error.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"streams": []}, "streams is empty"),
        ({"streams": [{"encoder": "keras:x"}]}, "encoder is keras:x, but must be embedded, path:FOLDER or hub:NAME"),
        ({"streams": [{"lengths": ["journal:"]}]}, "lengths is journal:, but must be data, journal:PATH"),
        ({"streams": [{"lengths": []}]}, "lengths is empty, but must be data"),
        ({"streams": [{"slo": 0.0}]}, "slo is 0.0, but must be above 0"),
        ({"streams": [{"name": "../up"}]}, "name of a stream is '../up'"),
        ({"streams": [{"name": "encoder-x"}]}, "not to begin with encoder-"),
        ({"edges": {"count": "all"}}, "edges.count is all, but must be auto"),
        ({"edges": {"batches": [2, 4]}}, "edges.batches"),
        ({"engine": {"engine": "tensorrt"}}, "engine is tensorrt, but must be auto or one of onnx"),
        ({"placement": "own"}, "placement is own, but must be one of shared, single"),
        ({"threads": 0}, "threads is 0, but must be at least 1"),
        (
            {"embedded": {"scratch": {"positions": 32}}},
            "embedded.classifier.max_length is 64, but must be at most scratch.positions, 32",
        ),
    ],
)
def test_a_mistake_is_told_in_a_sentence(values, sentence):
    with pytest.raises(InputError) as error:
        read(overrides=values)
    assert sentence in str(error.value)


def test_an_engine_that_does_not_run_on_the_device_is_refused_before_anything_is_trained(monkeypatch):
    with pytest.raises(InputError, match="engine is graphs, but must be onnx, aot or eager on cpu"):
        read(overrides={"device": "cpu", "engine": {"engine": "graphs"}})
    monkeypatch.setattr("pliant.flows.config.resolve_device", lambda name: name)  # as where there is a GPU
    with pytest.raises(InputError, match="engine is aot, but must be graphs or eager on cuda:0"):
        read(overrides={"device": "cuda:0", "engine": {"engine": "aot"}})
    assert read(overrides={"device": "cuda:0", "engine": {"engine": "graphs"}}).engine.engine == "graphs"


def test_short_forms_stand_for_every_stream():
    config = read(overrides={"data": ["docstrings:kind", "mine=json:a.jsonl"], "limit": 50, "slo": 0.4})
    assert [(s.data, s.name, s.limit, s.slo) for s in config.streams] == [
        ("docstrings:kind", None, 50, 0.4),
        ("json:a.jsonl", "mine", 50, 0.4),
    ]
    config = read(overrides={"encoder": "path:models/mini", "lengths": ["journal:j.jsonl", "data"]})
    assert config.streams == (StreamConfig("path:models/mini", lengths=("journal:j.jsonl", "data")),)
    with pytest.raises(InputError, match="encoder is bert"):
        read(overrides={"encoder": "bert"})


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


def test_a_stream_that_takes_its_lengths_elsewhere_needs_no_data():
    assert StreamConfig().needs_data
    assert StreamConfig(lengths=("parquet:x",)).needs_data
    assert not StreamConfig("path:x", lengths=("parquet:x",)).needs_data


@pytest.mark.parametrize("path", sorted(PRESETS.glob("bins_*.toml")), ids=lambda path: path.stem)
def test_a_preset_is_read(path):
    config = read(path)
    names = [stream.stream_name(stream.data.partition(":")[2]) for stream in config.streams]
    assert len(set(names)) == len(names) >= 1
    assert config.edges == EdgesConfig() or config.edges.batches[-1] in (8, 16, 32)


def test_on_a_cpu_nothing_is_downloaded_and_on_a_gpu_runtimes_are_captured():
    assert {stream.encoder for stream in read(PRESETS / "bins_cpu.toml").streams} == {"embedded"}
    config = read(PRESETS / "bins_gpu.toml")
    assert config.device == "cuda"
    assert "graphs" in config.engine.tried
