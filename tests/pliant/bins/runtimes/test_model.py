"""Encoders as modules: their heads, and weights that do not fit."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from pliant.bins.runtimes.model import describe, load_model
from pliant.errors import ArtifactError
from pliant.models.classifier import typed
from tests.fixtures.bins.encoders import FAMILIES, tiny_encoder

IDS = torch.arange(5, 15).view(2, 5)
HALF = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def hidden(encoder, **inputs) -> torch.Tensor:
    return load_model(encoder).model(**inputs).last_hidden_state


@pytest.mark.parametrize("family", FAMILIES)
def test_an_embedding_is_the_mean_of_valid_tokens_or_the_first_one(family):
    mean = tiny_encoder(family, "embedding", "mean", normalize=False)
    with torch.inference_mode():
        token_BNH = hidden(mean, input_ids=IDS, attention_mask=HALF)
        expected = torch.stack([token_BNH[0].mean(0), token_BNH[1, :3].mean(0)])
        torch.testing.assert_close(load_model(mean)(IDS, HALF), expected)
        torch.testing.assert_close(load_model(mean)(IDS), load_model(mean)(IDS, torch.ones_like(IDS)))
        first = load_model(replace(mean, pooling="cls"))(IDS, HALF)
    torch.testing.assert_close(first, token_BNH[:, 0])


@pytest.mark.parametrize(("family", "inputs"), [("bert", 3), ("modernbert", 2), ("distilbert", 2)])
def test_an_encoder_is_described_without_its_weights(family, inputs):
    encoder = tiny_encoder(family, "embedding")
    described, loaded = describe(encoder), load_model(encoder)
    assert (described.inputs, described.pad, described.positions, described.typed) == (
        loaded.inputs,
        loaded.pad,
        loaded.positions,
        loaded.typed,
    )
    assert (len(described.inputs), described.positions) == (inputs, 40)
    assert all(each.is_meta for each in described.parameters())


@pytest.mark.parametrize("head", ["classification", "embedding"])
def test_weights_that_do_not_fit_are_told_by_name(head):
    encoder = tiny_encoder("bert", head)
    name = next(name for name in encoder.weights if name.endswith("word_embeddings.weight"))
    lacking = {key: array for key, array in encoder.weights.items() if key != name}
    for weights in (lacking, {**encoder.weights, name: np.zeros((2, 2), np.float32)}):
        with pytest.raises(ArtifactError, match=f"the weights of tiny do not fit its configuration: .*{name}"):
            load_model(replace(encoder, weights=weights))


def test_a_model_of_one_type_of_token_is_given_no_types_and_one_without_padding_is_padded_by_0():
    config = json.loads(tiny_encoder("bert", "embedding").config)
    for changes, inputs, pad in (
        ({"type_vocab_size": 2, "pad_token_id": 7}, ("input_ids", "attention_mask", "token_type_ids"), 7),
        ({"type_vocab_size": 1, "pad_token_id": None}, ("input_ids", "attention_mask"), 0),
    ):
        described = describe(replace(tiny_encoder("bert", "embedding"), config=json.dumps({**config, **changes})))
        assert (described.inputs, described.typed, described.pad) == (inputs, len(inputs) == 3, pad)


@pytest.mark.parametrize(
    ("family", "expected"), [("gpt2", False), ("bert", True), ("xlnet", True), ("distilbert", False)]
)
def test_only_a_model_with_embeddings_of_token_types_is_given_them(family, expected):
    """GPT-2 takes the argument too, and adds the embeddings of these ids as words."""
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "d_model": 8, "d_inner": 8, "vocab_size": 20}
    bert = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "dim": 8}
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(family, **sizes, **(bert if "bert" in family else {})))
    assert typed(model) is expected
