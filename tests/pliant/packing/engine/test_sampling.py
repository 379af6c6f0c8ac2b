"""Seeded sampling against a plain reference, and against the probabilities that it must follow."""

from __future__ import annotations

import math
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch

from pliant.errors import InputError
from pliant.packing.engine.sampling import BITS, FIRST, MASK, SECOND, STRIDE, arguments, draw, gumbel, key
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.request import Prompt

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


def test_the_noise_of_a_key_is_the_same_in_every_version() -> None:
    noise = gumbel(torch.tensor([1, -7, 2**31 - 1], dtype=torch.int32), 4)
    expected = [
        [0.110225, -0.562425, -0.179732, -1.275962],
        [0.853918, 0.906588, -1.035558, 0.120368],
        [0.518766, -0.234277, 5.855206, -0.219936],
    ]
    np.testing.assert_allclose(noise.numpy(), expected, rtol=1e-4)
    assert noise.dtype == torch.float32


def test_what_is_read_is_within_the_vocabulary_and_nothing_for_greedy_requests() -> None:
    assert arguments(Sampling(seed=3, top_k=5), 50) == {}
    assert arguments(Sampling(1, seed=3), 50) == {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "seed": 3}
    assert arguments(Sampling(0.5, 0.9, 49), 50) == {"temperature": 0.5, "top_k": 49, "top_p": 0.9, "seed": 0}
    assert arguments(Sampling(0.5, 0.9, 51), 50)["top_k"] == 50


PROMPT = Prompt(3, 1.0, 2, 10, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0), bucket=6, exact=9, deadline=4.0, tenant="ann")


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("temperature", -0.1, "at least 0 and finite"),
        ("temperature", inf, "at least 0 and finite"),
        ("temperature", nan, "at least 0 and finite"),
        ("top_p", 0.0, "above 0 and at most 1"),
        ("top_p", 1.1, "above 0 and at most 1"),
        ("top_p", nan, "above 0 and at most 1"),
        ("top_k", -1, "at least 0"),
        ("min_p", 1.5, "from 0 to 1"),
        ("min_p", nan, "from 0 to 1"),
        ("repetition_penalty", 0.0, "above 0 and finite"),
        ("repetition_penalty", inf, "above 0 and finite"),
        ("frequency_penalty", nan, "finite"),
        ("presence_penalty", inf, "finite"),
    ],
)
def test_sampling_beyond_its_limits_is_refused(field, value, limit):
    with pytest.raises(InputError, match=f"^{field} is {value}, but must be {limit}$"):
        Sampling(**{field: value})


@pytest.mark.parametrize(("ids", "generated"), [((5,), 0), ((5, 6, 7), 0), ((5, 6), 1), ((5, 6, 7), 2), ((5,), -1)])
def test_the_tokens_are_those_of_the_prompt_and_those_generated_before(ids, generated):
    with pytest.raises(InputError, match=f"^ids is {len(ids)} tokens, but must be the prompt's 2 and {generated} made"):
        Submission(PROMPT, ids, generated=generated)


@pytest.mark.parametrize(("generated", "force"), [(10, 0), (0, 11), (4, 4), (5, 4), (0, -1)])
def test_more_than_the_limit_or_nothing_to_come_is_refused(generated, force):
    with pytest.raises(InputError, match=f"^tokens to make is .* above {generated} and at most 10$"):
        Submission(PROMPT, tuple(range(2 + generated)), generated=generated, force=force)


def test_after_a_crash_what_was_generated_belongs_to_the_prompt_and_less_is_to_come():
    rest = Submission(PROMPT, (5, 6, 7, 8, 9), generated=3).remaining()
    assert (rest.tokens, rest.limit) == (5, 7)
    assert rest.forecast == (1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert (rest.bucket, rest.exact) == (3, 6)
    assert replace(rest, tokens=2, limit=10, forecast=PROMPT.forecast, bucket=6, exact=9) == PROMPT


def test_a_text_that_outlasted_its_prediction_has_a_token_to_come_and_what_was_not_predicted_stays_unknown():
    ids = tuple(range(10))
    rest = Submission(PROMPT, ids, generated=8).remaining()
    assert (rest.bucket, rest.exact) == (1, 1)
    rest = Submission(replace(PROMPT, bucket=0, exact=0), ids, generated=8).remaining()
    assert (rest.bucket, rest.exact) == (0, 0)
