"""Weights go into their model alone; packed layers give the same; a batch beyond the memory runs in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pliant.errors import ArtifactError
from pliant.fallbacks import Collector
from pliant.models.classifier import load_model, module, positions, weights
from pliant.models.execution import PackedLinear, Pieces, can_pack
from tests.fixtures.cascade.classifiers import tiny_classifier, tiny_config


def test_a_model_has_the_weights_of_its_artifact_and_judges_rather_than_trains():
    classifier = tiny_classifier()
    model = load_model(classifier)
    stored = weights(model)
    assert not model.training and stored.keys() == classifier.weights.keys()
    assert all(np.array_equal(stored[name], array) for name, array in classifier.weights.items())
    assert {array.dtype for array in stored.values()} == {np.dtype(np.float32)}
    with torch.no_grad():
        next(model.parameters()).add_(1)
    assert all(np.array_equal(stored[name], array) for name, array in classifier.weights.items()), "not a copy"


def without(classifier, name):
    return replace(classifier, weights={key: array for key, array in classifier.weights.items() if key != name})


def test_weights_of_another_model_are_refused_with_their_names():
    classifier = tiny_classifier()
    name = "classifier.bias"
    with pytest.raises(ArtifactError, match=f"the weights of small do not fit its configuration: {name}$"):
        load_model(without(classifier, name))
    more = replace(classifier, weights={**classifier.weights, "extra.weight": np.zeros(1, np.float32)})
    with pytest.raises(ArtifactError, match=r"do not fit its configuration: extra.weight$"):
        load_model(more)
    longer = replace(classifier, weights={**classifier.weights, name: np.zeros(7, np.float32)})
    with pytest.raises(ArtifactError, match=r"(?s)do not fit its configuration: .*size mismatch for classifier\.bias"):
        load_model(longer)
    with pytest.raises(ArtifactError) as caught:
        load_model(replace(classifier, weights={}))
    assert str(caught.value).count(", ") == 3, "four names"


@pytest.mark.parametrize(
    ("family", "read"),
    [
        ("bert", 40),
        ("roberta", 38),  # it numbers from behind the padding token, 1, on
        ("modernbert", 40),  # no table: what is configured
        ("t5", None),
    ],
)
def test_a_model_reads_as_many_tokens_as_it_has_positions(family, read):
    config = tiny_config(family)
    if family == "t5":
        del config["max_position_embeddings"]
    assert positions(module(config)) == read


PACKS = pytest.mark.skipif(not can_pack(), reason="oneDNN's linear layers are for x86")


@PACKS
@torch.no_grad()
@pytest.mark.parametrize("rows", [(1,), (3, 7), (8, 65), (2, 5, 200)])
@pytest.mark.parametrize(("inside", "outside"), [(96, 288), (24, 96), (1024, 1024)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_gives_what_the_plain_one_gives(rows, inside, outside, bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(inside, outside, bias=bias), torch.randn(*rows, inside)
    assert torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    assert torch.allclose(PackedLinear(layer, "gelu")(x), nn.GELU()(layer(x)), atol=1e-5)


CPU = torch.device("cpu")


class Memory:
    """A device with room for so many payloads; each result is the payload doubled."""

    def __init__(self, room: int) -> None:
        self.room, self.tried = room, []

    def __call__(self, payloads):
        self.tried.append(len(payloads))
        if len(payloads) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [2 * payload for payload in payloads]


@pytest.mark.parametrize("room", [1, 2, 3, 5, 8])
def test_every_payload_has_its_result_in_order_whatever_fits(room):
    memory = Memory(room)
    assert Pieces(CPU).run(0, "small", list(range(8)), memory, memory) == list(range(0, 16, 2))


def test_the_size_that_fits_is_kept_for_later_batches_of_the_same_key_and_told():
    pieces, memory, collector = Pieces(CPU), Memory(3), Collector()
    pieces.run(5, "small", list(range(8)), memory, memory)
    assert memory.tried == [8, 4, 2, 2, 2, 2]
    assert pieces.fallbacks == ("small runs at most 2 at a time: the device lacked memory for 4",)
    noted = collector.take()
    assert [(fallback.kind, fallback.setting, fallback.batch) for fallback in noted] == [
        ("memory", 5, 4),
        ("memory", 5, 2),
    ]
    memory.tried.clear()
    pieces.run(5, "small", list(range(4)), memory, memory)
    assert memory.tried == [2, 2]
    memory.tried.clear()
    pieces.run(1, "large", list(range(3)), memory, memory)
    assert memory.tried == [3]


def test_without_a_lack_of_memory_nothing_is_told_and_other_errors_pass():
    pieces = Pieces(CPU)
    assert pieces.run(0, "small", [1], Memory(1), None) == [2]
    assert pieces.fallbacks == ()

    def broken(payloads):
        raise RuntimeError("another error")

    with pytest.raises(RuntimeError, match="another error"):
        pieces.run(0, "small", [1, 2], broken, broken)


def test_on_a_gpu_what_the_failed_batch_had_allocated_is_given_back_first(monkeypatch):
    emptied, memory = [], Memory(1)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(len(memory.tried)))
    Pieces(torch.device("cuda")).run(0, "small", [1, 2], memory, memory)
    assert emptied == [1]
