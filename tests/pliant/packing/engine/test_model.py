"""Generators and predictors come back from their artifacts unchanged; what does not fit is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pliant.errors import ArtifactError
from pliant.packing.artifact import BUCKETS, Generator, Predictor
from pliant.packing.engine.model import (
    LengthModel,
    PredictorModel,
    load_generator,
    new_encoder,
    tensors,
    tokenizer_of,
    weights,
)
from pliant.packing.scheduling.forecast import QUANTILES
from training.starts import new_tokenizer

TEXTS = ["write a word about dogs", "write an essay on the old sea", "say a sentence", ""]


def generator(tied: bool) -> tuple[Generator, LlamaForCausalLM]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=tied,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    return Generator("g", config.to_json_string(use_diff=False), "", "", 64, (3, 5), "", weights(model)), model


ENCODERS = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
}


@pytest.fixture(params=ENCODERS)
def predictor(request) -> Predictor:
    torch.manual_seed(0)
    tokenizer = new_tokenizer(TEXTS, 60)
    size = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 12}
    encoder = new_encoder({"model_type": request.param, **ENCODERS[request.param], **size})
    model = LengthModel(encoder)
    config = encoder.config.to_json_string(use_diff=False)
    return Predictor(
        *("p", "", config, tokenizer.to_str(), 12, QUANTILES, 20, (1.0,) * len(QUANTILES)),
        metrics={},
        data="",
        weights=weights(model),
    )


@pytest.mark.parametrize("tied", [True, False])
def test_a_generator_says_the_same_after_it_was_stored(tied):
    stored, model = generator(tied)
    ids = torch.tensor([[1, 7, 22, 9]])
    loaded = load_generator(stored)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.generation_config.eos_token_id == [3, 5]
    assert not loaded.training


def test_tied_weights_are_stored_once():
    stored, _ = generator(tied=True)
    assert "lm_head.weight" not in stored.weights
    assert "lm_head.weight" in generator(tied=False)[0].weights


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model.norm.weight": None}, "do not fit its configuration: model.norm.weight"),
        ({"extra": np.zeros(1, np.float32)}, "do not fit its configuration: extra"),
        ({"model.norm.weight": np.zeros(3, np.float32)}, "do not fit its configuration: Error"),
    ],
)
def test_weights_that_do_not_fit_are_told(change, sentence):
    stored, _ = generator(tied=True)
    changed = {name: array for name, array in (dict(stored.weights) | change).items() if array is not None}
    with pytest.raises(ArtifactError, match=sentence):
        load_generator(replace(stored, weights=changed))


def test_a_tokenizer_that_is_none_is_told():
    with pytest.raises(ArtifactError, match="no tokenizer"):
        tokenizer_of("{}")


def test_a_prompt_is_predicted_alike_alone_and_beside_longer_ones(predictor):
    model = PredictorModel.of(predictor)
    for text, beside in zip(TEXTS, model.predict(TEXTS), strict=True):
        (alone,) = model.predict([text])
        assert alone.bucket == beside.bucket
        np.testing.assert_allclose(alone.tokens, beside.tokens, rtol=1e-4)


def test_many_prompts_keep_their_order(predictor):
    model = PredictorModel.of(predictor)
    many = [TEXTS[n % 3] for n in range(200)]
    single = [model.predict([text])[0].tokens for text in TEXTS[:3]]
    for n, said in enumerate(model.predict(many)):
        np.testing.assert_allclose(said.tokens, single[n % 3], rtol=1e-4)
    assert model.predict([]) == []


def test_of_a_long_prompt_the_last_tokens_count(predictor):
    model, end = PredictorModel.of(predictor), "write an essay on the old sea about dogs"
    long = [model.predict([f"{start * 400} {end}"])[0].tokens for start in ("say a word ", "old sea ")]
    assert long[0] == long[1] != model.predict(["say a sentence"])[0].tokens


def test_quantiles_ascend_whatever_the_weights_and_the_shift(predictor):
    rng = np.random.default_rng(0)
    wild = {name: rng.normal(0, 2, array.shape).astype(np.float32) for name, array in predictor.weights.items()}
    for said in PredictorModel.of(replace(predictor, weights=wild)).predict(TEXTS):
        assert list(said.tokens) == sorted(said.tokens)
        assert min(said.tokens) >= 1 and max(said.tokens) <= BUCKETS * 20
        assert said.bucket in range(20, 201, 20)


def test_rows_are_padded_behind_and_masked():
    ids, mask = tensors([[5, 6, 7], [8], []])
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
