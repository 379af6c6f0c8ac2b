"""Attention importance equals that of eager attention, for any family of models and any size of blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.attention import Received, blocks, watch
from pliant.models.classifier import load_model
from tests.fixtures.cascade.classifiers import tiny_classifier

LENGTHS = (20, 13, 7)
FAMILIES = ("bert", "roberta", "electra", "distilbert", "albert", "modernbert", "llama")


def batch(pad: int, lengths=LENGTHS) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    valid_BN = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    id_BN = torch.from_numpy(rng.integers(5, 80, tuple(valid_BN.shape))).where(valid_BN, pad)
    return {"input_ids": id_BN, "attention_mask": valid_BN.long()}


@torch.inference_mode()
def eager(classifier, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits, and the attention that valid tokens give, summed over layers, heads and queries."""
    model = load_model(classifier)
    model.set_attn_implementation("eager")
    run = model(**inputs, output_attentions=True)
    given_BHNM = sum(run.attentions) * inputs["attention_mask"][:, None, :, None]
    return run.logits, given_BHNM.sum((1, 2))


@pytest.mark.parametrize("lengths", [LENGTHS, (20, 20)])
@pytest.mark.parametrize("limit", [None, 700, 90, 1], ids=lambda limit: f"limit {limit}")
@pytest.mark.parametrize("family", FAMILIES)
def test_importance_is_the_sum_of_eager_attentions_and_the_logits_stay(family, limit, lengths):
    classifier = tiny_classifier(family=family)
    model = load_model(classifier)
    inputs = batch(model.config.pad_token_id, lengths)
    logit_BK, expected_BM = eager(classifier, inputs)
    watch(model)
    padded = len(set(lengths)) > 1
    received = Received(inputs["attention_mask"].bool() if padded else None, limit)
    with torch.inference_mode():
        run = model(**(inputs if padded else {"input_ids": inputs["input_ids"]}), received=received)
    np.testing.assert_allclose(run.logits, logit_BK, atol=1e-5)
    np.testing.assert_allclose(received.total_BM, expected_BM, atol=1e-5)
    assert not received.total_BM[inputs["attention_mask"] == 0].any()


def test_a_model_that_is_not_asked_runs_plain_attention_to_the_last_bit():
    classifier = tiny_classifier()
    plain, watched = load_model(classifier), load_model(classifier)
    watch(watched)
    with torch.inference_mode():
        assert torch.equal(watched(**batch(0)).logits, plain(**batch(0)).logits)


def test_two_runs_of_one_model_at_once_do_not_mix_their_importances():
    model = load_model(tiny_classifier())
    watch(model)
    first, other = Received(), Received()
    with torch.inference_mode():
        model(input_ids=torch.full((1, 5), 7), received=first)
        model(input_ids=torch.full((1, 9), 8), received=other)
    assert (first.total_BM.shape, other.total_BM.shape) == ((1, 5), (1, 9))


@given(*(st.integers(1, 7) for _ in range(4)), st.integers(1, 500))
def test_blocks_cover_every_weight_once_within_the_limit(batch, heads, queries, keys, limit):
    seen = np.zeros((batch, heads, queries), dtype=int)
    for block in blocks(batch, heads, queries, keys, limit):
        seen[block] += 1
        assert seen[block].size * keys <= max(limit, keys)
    assert np.all(seen == 1)
