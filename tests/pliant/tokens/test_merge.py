"""Bipartite soft matching agrees with a plain reference that works token by token."""

from __future__ import annotations

import math

import pytest
import torch

from pliant.tokens.merge import match, merge, merged_count, tokens_per_layer


def reference(x, size, metric, merged):
    """ToMe, section 3, for one image: lists of (features, size), kept even tokens first, then all odd ones."""
    even, odd = list(range(0, len(x), 2)), list(range(1, len(x), 2))
    edges = []
    for token in even:
        if token == 0:
            continue  # the class token never goes
        scores = [float(torch.cosine_similarity(metric[token], metric[other], dim=0)) for other in odd]
        best = max(range(len(odd)), key=lambda j: scores[j])
        edges.append((scores[best], token, odd[best]))
    gone = {token: target for _, token, target in sorted(edges, reverse=True)[:merged]}
    out = [(x[token], float(size[token])) for token in even if token not in gone]
    for target in odd:
        group = [target, *(token for token, into in gone.items() if into == target)]
        total = sum(float(size[token]) for token in group)
        out.append((sum(x[token] * float(size[token]) for token in group) / total, total))
    return out


@pytest.mark.parametrize(("tokens", "merged"), [(17, 1), (17, 5), (17, 8), (10, 3), (10, 4), (3, 1), (4, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_merging_agrees_with_the_plain_reference(tokens, merged, seed):
    torch.manual_seed(seed)
    x, metric = torch.randn(3, tokens, 6), torch.randn(3, tokens, 4)
    size = torch.randint(1, 5, (3, tokens, 1)).float()
    out, out_size = merge(x, size, match(metric, merged))
    assert out.shape == (3, tokens - merged, 6)
    for image in range(3):
        expected = reference(x[image], size[image], metric[image], merged)
        for token, (features, weight) in enumerate(expected):
            assert out_size[image, token].item() == pytest.approx(weight)
            assert torch.allclose(out[image, token], features, atol=1e-5)


def test_sizes_always_sum_to_the_number_of_tokens_merged_into_them():
    torch.manual_seed(0)
    x, size = torch.randn(2, 65, 8), torch.ones(2, 65, 1)
    while (count := merged_count(x.shape[1], 20)) > 0:
        x, size = merge(x, size, match(x, count))
        assert size.sum(dim=1).flatten().tolist() == pytest.approx([65, 65])
    assert x.shape[1] == 2


def test_the_class_token_stays_first_and_alone_even_if_it_is_the_most_similar():
    x = torch.randn(1, 9, 4)
    x[:, 1] = x[:, 0]  # an odd token equal to the class token
    out, size = merge(x, torch.ones(1, 9, 1), match(x, 4))
    assert torch.equal(out[:, 0], x[:, 0])
    assert size[0, 0].item() == 1.0


def test_the_weighted_sum_of_all_tokens_is_kept():
    torch.manual_seed(2)
    x, size = torch.randn(2, 20, 5), torch.rand(2, 20, 1) + 0.5
    out, out_size = merge(x, size, match(torch.randn(2, 20, 3), 7))
    assert torch.allclose((out * out_size).sum(1), (x * size).sum(1), atol=1e-5)


def test_each_image_is_matched_by_itself():
    torch.manual_seed(3)
    x = torch.randn(4, 16, 5)
    together, _ = merge(x, torch.ones(4, 16, 1), match(x, 5))
    for image in range(4):
        alone, _ = merge(x[image : image + 1], torch.ones(1, 16, 1), match(x[image : image + 1], 5))
        assert torch.allclose(alone[0], together[image], atol=1e-6)


def test_keys_of_length_zero_do_not_spoil_the_result():
    out, _ = merge(torch.randn(1, 8, 3), torch.ones(1, 8, 1), match(torch.zeros(1, 8, 3), 2))
    assert torch.isfinite(out).all()


@pytest.mark.parametrize(("gamma", "last"), [(-5, 137), (-10, 77), (-15, 17), (-20, 4), (0, 197), (8, 205)])
def test_a_vit_of_197_tokens_and_12_layers_ends_with_the_published_counts(gamma, last):
    assert tokens_per_layer(197, gamma, 12)[-1] == last


@pytest.mark.parametrize(
    ("tokens", "wanted", "merged"), [(197, 20, 20), (37, 20, 18), (4, 9, 1), (3, 9, 1), (2, 9, 0), (1, 9, 0), (9, 0, 0)]
)
def test_at_most_half_of_the_unprotected_tokens_are_merged(tokens, wanted, merged):
    assert merged_count(tokens, wanted) == merged


@pytest.mark.parametrize("tokens", range(2, 40))
def test_there_are_always_enough_pairs_for_the_count(tokens):
    """The even half without the class token must hold as many as are merged."""
    count = merged_count(tokens, 99)
    assert count <= math.ceil(tokens / 2) - 1
    x = torch.randn(1, tokens, 3)
    assert merge(x, torch.ones(1, tokens, 1), match(x, count))[0].shape[1] == tokens - count
