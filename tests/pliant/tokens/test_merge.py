"""Token merging keeps the invariants of ToMe, and agrees with a plain reference that works token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from pliant.tokens.merge import match, merge, merged_count
from tests.fixtures.tokens.merging import INVARIANTS, check, fast, judge, reference, tokens_per_layer


def drawn(rng: np.random.Generator, tokens: int, width: int):
    """Return tokens, their sizes and their keys."""
    return rng.normal(size=(tokens, width)), rng.integers(1, 6, tokens).astype(float), rng.normal(size=(tokens, 8))


@given(st.integers(2, 70), st.integers(1, 12), st.integers(1, 80), st.integers(0, 2**32 - 1))
def test_every_invariant_holds_at_every_shape_and_count(tokens, width, wanted, seed):
    x, size, key = drawn(np.random.default_rng(seed), tokens, width)
    assume(merged_count(tokens, wanted) > 0)
    verdict = judge((x, size), fast(x, size, key, wanted), reference(x, size, key, wanted))
    assert verdict == dict.fromkeys(INVARIANTS, True)


def test_every_invariant_holds_layer_after_layer():
    checked = check(cases=12, seed=3)
    assert (checked.share, checked.held) == (1.0, dict.fromkeys(INVARIANTS, 12))


BREACHES = {
    "sizes sum to n": lambda y, sizes: (y, sizes + np.eye(len(sizes))[1]),
    "weighted sums are conserved": lambda y, sizes: (y + 0.1 * np.eye(len(sizes))[1][:, None], sizes),
    "the class token survives unmerged": lambda y, sizes: (y[::-1], sizes[::-1]),
    "at most half of the tokens go": lambda y, sizes: (y[:1], sizes[:1]),
    "equal to the reference": lambda y, sizes: (y[[0, *range(len(y) - 1, 0, -1)]], sizes),
}


@pytest.mark.parametrize("broken", INVARIANTS)
def test_a_breach_of_an_invariant_is_found(broken):
    x, size, key = drawn(np.random.default_rng(0), 21, 5)
    verdict = judge((x, size), BREACHES[broken](*fast(x, size, key, 6)), reference(x, size, key, 6))
    assert not verdict[broken]


@given(st.integers(1, 4), st.integers(3, 40), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_a_batch_is_merged_like_its_images_one_by_one(batch, tokens, wanted, seed):
    rng = np.random.default_rng(seed)
    images = [drawn(rng, tokens, 6) for _ in range(batch)]
    x, size, key = (torch.tensor(np.stack(column), dtype=torch.float32) for column in zip(*images, strict=True))
    out, sizes = merge(x, size[..., None], match(key, merged_count(tokens, wanted)))
    for image, (x_ND, size_N, key_NE) in enumerate(images):
        expected, expected_sizes = reference(x_ND, size_N, key_NE, wanted)
        assert np.allclose(out[image], expected, atol=1e-5)
        assert np.array_equal(sizes[image, :, 0], expected_sizes)


def test_half_precision_tokens_are_averaged_in_float32():
    """Sizes of up to 600 tokens are no bfloat16 numbers; the average of equal tokens is that token."""
    x, size = torch.full((1, 5, 3), 1.5, dtype=torch.bfloat16), torch.full((1, 5, 1), 301.0)
    out, sizes = merge(x, size, match(torch.randn(1, 5, 4), 2))
    assert (out.dtype, sizes.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(out, x[:, :3])
    assert sizes.sum() == 5 * 301


@pytest.mark.parametrize(("gamma", "last"), [(-5, 137), (-10, 77), (-15, 17), (-20, 4), (0, 197), (8, 205)])
def test_a_vit_of_197_tokens_and_12_layers_ends_with_the_published_counts(gamma, last):
    assert tokens_per_layer(197, gamma, 12)[-1] == last


@pytest.mark.parametrize("tokens", range(2, 40))
def test_there_are_always_enough_pairs_for_the_count(tokens):
    """The even half without the class token must hold as many as are merged."""
    count = merged_count(tokens, 99)
    assert count <= math.ceil(tokens / 2) - 1
    x = torch.randn(1, tokens, 3)
    assert merge(x, torch.ones(1, tokens, 1), match(x, count))[0].shape[1] == tokens - count
