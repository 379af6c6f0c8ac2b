"""Seeded sampling against a plain reference, and against the probabilities that it must follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.profiler import profile

from pliant.errors import InputError
from pliant.packing.engine.sampling import BITS, FIRST, MASK, SECOND, STRIDE, arguments, draw, gumbel, key
from pliant.packing.engine.submission import Sampling

VOCABULARY = 50


def row(seed: int) -> torch.Tensor:
    return 2 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))


def drawn(scores_BV: torch.Tensor, draws: list[tuple[Sampling, int]]) -> list[int]:
    settings = [(arguments(sampling, VOCABULARY), position) for sampling, position in draws]
    return draw(scores_BV, settings)[: len(draws)]


def plain(scores: list[float], sampling: Sampling, position: int) -> int:
    """Sample one request in plain Python: temperature, top-k, top-p, then the largest score with its noise."""
    if sampling.temperature == 0:
        return max(range(len(scores)), key=scores.__getitem__)
    warm = [score / sampling.temperature for score in scores]
    kept = set(sorted(range(len(warm)), key=lambda v: -warm[v])[: sampling.top_k or None])
    total = sum(math.exp(warm[v]) for v in kept)
    mass, nucleus = 0.0, set()
    for v in sorted(kept, key=lambda v: -warm[v]):
        if mass < sampling.top_p:
            nucleus.add(v)
        mass += math.exp(warm[v]) / total
    return max(nucleus, key=lambda v: warm[v] + plain_noise(key(sampling.seed, position), v))


def plain_noise(key: int, entry: int) -> float:
    x = (key + entry * STRIDE) & MASK
    x = ((x ^ (x >> 16)) * FIRST) & MASK
    x = ((x ^ (x >> 15)) * SECOND) & MASK
    x ^= x >> 16
    return -math.log(-math.log(((x >> (32 - BITS)) + 0.5) / 2**BITS))


def test_the_noise_is_that_of_the_plain_reference() -> None:
    keys = [key(seed, position) for seed in (0, 1, -5, 2**63) for position in (1, 2, 511)]
    fast = gumbel(torch.tensor(keys, dtype=torch.int32), VOCABULARY)
    slow = [[plain_noise(key_, entry) for entry in range(VOCABULARY)] for key_ in keys]
    np.testing.assert_allclose(fast.numpy(), slow, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.7), Sampling(1.3, top_k=5), Sampling(1.0, top_p=0.6), Sampling(2.0, top_p=0.8, top_k=9)],
    ids=["greedy", "temperature", "top_k", "top_p", "all"],
)
def test_a_mixed_batch_draws_what_the_plain_reference_draws(sampling: Sampling) -> None:
    company = [Sampling(), Sampling(1.5, top_k=3, seed=4), Sampling(0.8, top_p=0.5, seed=9)]
    for seed in range(40):
        mine = Sampling(sampling.temperature, sampling.top_p, sampling.top_k, seed)
        draws = [(mine, 3 + seed), *((other, 2 + seed) for other in company)]
        scores = torch.stack([row(100 * seed + n) for n in range(len(draws))])
        expected = [plain(scores[n].tolist(), *one) for n, one in enumerate(draws)]
        assert drawn(scores.clone(), draws) == expected
        assert drawn(scores[:1].clone(), draws[:1]) == expected[:1]


def test_a_greedy_batch_costs_one_argmax() -> None:
    with profile() as profiled:
        tokens = draw(torch.stack([row(1), row(2)]), [({}, 4), ({}, 9)])
    assert tokens == [int(row(1).argmax()), int(row(2).argmax())]
    names = {event.key for event in profiled.key_averages()}
    assert "aten::argmax" in names and not names & {
        "aten::sort",
        "aten::topk",
        "aten::softmax",
        "aten::log",
        "aten::div",
    }
    assert draw(torch.stack([row(1), row(2)])) == tokens


def test_rows_that_pad_a_batch_have_no_settings() -> None:
    scores = torch.stack([row(3), row(4), row(5)])
    mine = arguments(Sampling(1.0, seed=3), VOCABULARY)
    assert draw(scores, [({}, 2), (mine, 7)])[:2] == drawn(scores[:2], [(Sampling(), 2), (Sampling(1.0, seed=3), 7)])


def test_draws_follow_the_probabilities() -> None:
    scores, draws = row(7)[:12], 20_000
    keys = torch.tensor([key(seed, 5 + seed % 7) for seed in range(draws)], dtype=torch.int32)
    tokens = (scores + gumbel(keys, 12)).argmax(dim=-1)
    expected = draws * torch.softmax(scores, 0).numpy()
    observed = np.bincount(tokens.numpy(), minlength=12)
    assert float(((observed - expected) ** 2 / expected).sum()) < 31.3, "chi-square, 11 degrees of freedom, p = 0.001"


def test_positions_are_independent() -> None:
    noise = gumbel(torch.tensor([key(3, position) for position in range(1, 4001)], dtype=torch.int32), 2).numpy()
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.05
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.05
    assert abs(noise.mean() - 0.5772) < 0.05, "Euler's constant"


def test_a_key_is_a_32_bit_integer_and_never_zero() -> None:
    keys = [key(seed, position) for seed in range(200) for position in range(200)]
    assert all(-(2**31) <= value < 2**31 and value for value in keys)
    assert len(set(keys)) > 0.999 * len(keys)


def test_a_seed_gives_the_same_keys_in_every_version() -> None:
    keys = [key(seed, position) for seed, position in ((0, 1), (1, 1), (7, 2), (2**32, 5))]
    assert keys == [1917502043, 267936559, 1636201043, -217919934]


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -1.0), ("temperature", math.nan), ("top_p", 0.0), ("top_p", 1.1), ("top_k", -1)],
)
def test_what_cannot_be_sampled_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        Sampling(**{field: value})


def test_the_noise_of_a_key_is_the_same_in_every_version() -> None:
    noise = gumbel(torch.tensor([1, -7, 2**31 - 1], dtype=torch.int32), 4)
    expected = [
        [0.110225, -0.562425, -0.179732, -1.275962],
        [0.853918, 0.906588, -1.035558, 0.120368],
        [0.518766, -0.234277, 5.855206, -0.219936],
    ]
    np.testing.assert_allclose(noise.numpy(), expected, rtol=1e-4)
    assert noise.dtype == torch.float32


def test_a_key_of_any_seed_is_pinned() -> None:
    keys = [key(seed, position) for seed, position in ((-1, 1), (2**63 - 1, 1), (12345, 678), (5, 0))]
    assert keys == [
        -1711775374,
        393224418,
        904481752,
        -788417095,
    ]


def test_what_is_read_is_within_the_vocabulary_and_nothing_for_greedy_requests() -> None:
    assert arguments(Sampling(seed=3, top_k=5), 50) == {}
    assert arguments(Sampling(1, seed=3), 50) == {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "seed": 3}
    assert arguments(Sampling(0.5, 0.9, 49), 50) == {"temperature": 0.5, "top_k": 49, "top_p": 0.9, "seed": 0}
    assert arguments(Sampling(0.5, 0.9, 51), 50)["top_k"] == 50
