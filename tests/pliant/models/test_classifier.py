"""Weights go into the model that they belong to and into no other; layers and positions of several families."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from pliant.errors import ArtifactError
from pliant.models.classifier import layers, load_model, module, positions, weights
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


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_the_layers_are_those_of_the_encoder(family):
    assert len(layers(module(tiny_config(family)))) == 2


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


def test_only_a_table_of_positions_counts_as_one():
    model = nn.Module()
    model.position_embeddings = nn.Linear(3, 3)
    model.word_embeddings = nn.Embedding(80, 3)
    model.config = SimpleNamespace(max_position_embeddings=12)
    assert positions(model) == 12
    model.position_embeddings = nn.Embedding(9, 3)
    assert positions(model) == 9
    model.position_embeddings = nn.Embedding(9, 3, padding_idx=0)
    assert positions(model) == 8
    del model.position_embeddings, model.config.max_position_embeddings
    assert positions(model) is None
