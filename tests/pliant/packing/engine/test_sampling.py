"""Seeded sampling, penalties, biases and log-probabilities, against plain Python and the model's own forward pass."""

from __future__ import annotations

import math
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.sampling import (
    BITS,
    FIRST,
    MASK,
    SECOND,
    STRIDE,
    change_logits,
    draw,
    gumbel,
    key,
    logprobs_of,
)
from pliant.packing.engine.submission import Progress, Sampling, Submission, TokenLogprobs
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from tests.fixtures.packing.generators import (
    CONTEXT,
    ENDS,
    HOSTED,
    LIMIT,
    SCARCE,
    VOCABULARY,
    Desk,
    generated,
    prompts,
    running,
    submission,
    tiny_generator,
)

SCORES = 50


def row(seed: int) -> torch.Tensor:
    return 2 * torch.randn(SCORES, generator=torch.Generator().manual_seed(seed))


def drawn(scores_BV: torch.Tensor, draws: list[tuple[Sampling, int]]) -> list[int]:
    return draw(scores_BV, draws)[: len(draws)]


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
    fast = gumbel(torch.tensor(keys, dtype=torch.int32), SCORES)
    slow = [[plain_noise(key_, entry) for entry in range(SCORES)] for key_ in keys]
    np.testing.assert_allclose(fast.numpy(), slow, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "sampling",
    [
        *(Sampling(top_k=5), Sampling(0.7), Sampling(1.0, top_p=0.6), Sampling(2.0, top_p=0.8, top_k=9)),
        *(Sampling(1.3, top_k=top_k) for top_k in (1, 5, SCORES - 1, SCORES, SCORES + 1)),
    ],
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


PAGED = Rules("paged", CONTEXT)
AMPLE = replace(SCARCE, pages=400)
COUNT = 10
PENALTIES = Sampling(repetition_penalty=1.3, frequency_penalty=0.7, presence_penalty=-0.4)
REQUESTS = {
    "repetition": Sampling(repetition_penalty=1.5),
    "frequency": Sampling(frequency_penalty=1.5),
    "presence": Sampling(presence_penalty=2.0),
    "all penalties": PENALTIES,
    "bias": Sampling(logit_bias=((5, 100.0), (9, 98.0), (7, -100.0))),
    "min_tokens": Sampling(min_tokens=35),
    "ignore_eos": Sampling(ignore_eos=True),
    "stop_tokens": Sampling(stop_tokens=(11, 30), ignore_eos=True),
    "min_tokens and stop_tokens": Sampling(stop_tokens=(11, 30), min_tokens=6),
}


def plain_change(
    scores: list[float], changes: Sampling, tokens: list[int], prompt: int, ends: tuple[int, ...]
) -> list[float]:
    """Return changed scores, entry by entry."""
    output, bias = tokens[prompt:], dict(changes.logit_bias)
    changed = []
    for token, score in enumerate(scores):
        score += bias.get(token, 0.0)
        if len(output) < changes.min_tokens and token in ends:
            score = -math.inf
        if token in tokens:
            score = score / changes.repetition_penalty if score > 0 else score * changes.repetition_penalty
        if token in output:
            score -= changes.frequency_penalty * output.count(token) + changes.presence_penalty
        changed.append(score)
    return changed


tokens = st.integers(0, 15)
finite = st.floats(-4, 4, width=32)
changes = st.builds(
    Sampling,
    repetition_penalty=st.floats(0.25, 4, width=32),
    frequency_penalty=finite,
    presence_penalty=finite,
    logit_bias=st.dictionaries(tokens, finite).map(lambda bias: tuple(bias.items())),
    min_tokens=st.integers(0, 4),
)
rows = st.tuples(
    st.lists(finite, min_size=16, max_size=16),
    changes,
    st.lists(tokens, min_size=1, max_size=6),
    st.lists(tokens, max_size=6),
    st.lists(tokens, max_size=3).map(tuple),
)


@settings(deadline=None)
@given(rows)
def test_scores_change_as_in_plain_python(logit_row) -> None:
    scores, changes, prompt, output, ends = logit_row
    text = [*prompt, *output], len(prompt), ends
    scores_V = torch.tensor(scores)
    change_logits(scores_V, changes, *text)
    torch.testing.assert_close(scores_V, torch.tensor(plain_change(scores, changes, *text)), rtol=1e-5, atol=1e-5)


def test_the_likeliest_tokens_come_with_their_log_probabilities() -> None:
    scores_NV = torch.log(torch.tensor([[0.5, 0.125, 0.25, 0.125], [0.25, 0.25, 0.0625, 0.4375]]))
    first, second = logprobs_of(scores_NV + 3, [1, 3], [2, 0])
    assert first.logprob == pytest.approx(math.log(0.125), abs=1e-5)
    assert [token for token, _ in first.top] == [0, 2]
    assert [math.exp(each) for _, each in first.top] == pytest.approx([0.5, 0.25], abs=1e-5)
    assert second.logprob == pytest.approx(math.log(0.4375), abs=1e-5)
    assert second.top == ()
    assert len(logprobs_of(scores_NV, [0, 0], [9, 9])[0].top) == 4, "no more than there are"


def test_min_p_excludes_by_the_likeliest_token_s_probability() -> None:
    scores_1V = torch.log(torch.tensor([[0.5, 0.26, 0.24, 1e-9]]))
    wanted = [Sampling(1.0, min_p=min_p, seed=seed) for min_p in (0.5, 0.0) for seed in range(300)]
    drawn = draw(scores_1V.expand(600, -1), [(each, 3) for each in wanted])
    assert set(drawn[:300]) == {0, 1}
    assert set(drawn[300:]) == {0, 1, 2}


def reference(ids: tuple[int, ...], sampling: Sampling, limit: int = LIMIT) -> tuple[int, ...]:
    """Return a greedy text, each token by a forward pass over everything before it."""
    model, output = load_generator(tiny_generator()), list[int]()
    ends = (*(() if sampling.ignore_eos else ENDS), *sampling.stop_tokens)
    while len(output) < limit and not (output and output[-1] in ends):
        with torch.inference_mode():
            scores = model(torch.tensor([[*ids, *output]])).logits[0, -1].tolist()
        changed = plain_change(scores, sampling, [*ids, *output], len(ids), ends)
        output.append(changed.index(max(changed)))
    return tuple(output)


@pytest.mark.parametrize("sampling", REQUESTS.values(), ids=REQUESTS)
def test_texts_are_those_of_plain_python_in_company_and_under_preemption(sampling: Sampling) -> None:
    texts = prompts(COUNT)
    with running(HOSTED, PAGED) as (engine, desk):
        for id, ids in enumerate(texts):
            engine.submit(submission(id, ids, sampling=sampling if id % 2 else Sampling()))
        desk.wait(COUNT)
        assert desk.preemptions() > 0
        plain = generated(tiny_generator(), texts)
        expected = [reference(ids, sampling) if id % 2 else plain[id] for id, ids in enumerate(texts)]
        assert desk.texts() == expected
        assert any(expected[id] != plain[id] for id in range(1, COUNT, 2)), "the request changes something"
        ends = (*(() if sampling.ignore_eos else ENDS), *sampling.stop_tokens)
        for id in range(1, COUNT, 2):
            assert desk.last[id].finished == ("stop" if expected[id][-1] in ends else "length")


class LogprobsDesk(Desk):
    """Collects log-probabilities, too."""

    def __init__(self) -> None:
        super().__init__()
        self.logprobs: dict[int, list[TokenLogprobs]] = {}
        self.prompt_logprobs: dict[int, list[tuple[TokenLogprobs, ...]]] = {}

    def deliver(self, news: list[Progress]) -> None:
        for progress in news:
            self.logprobs.setdefault(progress.id, []).extend(progress.logprobs)
            if progress.prompt_logprobs:
                self.prompt_logprobs.setdefault(progress.id, []).append(progress.prompt_logprobs)
        super().deliver(news)


def forward_logprobs(ids: tuple[int, ...]) -> torch.Tensor:
    """Return the log-probabilities [T, V] after each token by one forward pass."""
    with torch.inference_mode():
        scores_TV: torch.Tensor = load_generator(tiny_generator())(torch.tensor([ids])).logits[0]
    return scores_TV.log_softmax(-1)


def check_logprobs(logprobs: tuple[TokenLogprobs, ...], logs_TV: torch.Tensor, ids: tuple[int, ...], top: int) -> None:
    assert len(logprobs) == len(ids) == len(logs_TV)
    for each, logs_V, token in zip(logprobs, logs_TV, ids, strict=True):
        assert each.logprob == pytest.approx(float(logs_V[token]), abs=1e-4)
        best = logs_V.topk(top)
        assert [token for token, _ in each.top] == best.indices.tolist()
        assert [log for _, log in each.top] == pytest.approx(best.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("memory", [SCARCE, AMPLE], ids=["discarding", "ample"])
def test_log_probabilities_are_those_of_one_forward_pass(memory: Memory) -> None:
    """Prompts are read in chunks beside other texts, and some are read again."""
    alike = tuple(range(30, 54))
    texts = [(*alike, *ids) for ids in prompts(COUNT)]
    desk = LogprobsDesk()
    with running(memory, PAGED, desk=desk) as (engine, _):
        for id, ids in enumerate(texts):
            wanted = {0: Sampling(), 1: Sampling(logprobs=0), 2: Sampling(logprobs=3, prompt_logprobs=2)}[id % 3]
            engine.submit(submission(id, ids, limit=20, sampling=wanted))
        desk.wait(COUNT)
        assert desk.texts() == generated(tiny_generator(), texts, limit=20)
        assert (desk.preemptions() > 0) == (memory is SCARCE)
    for id, (ids, text) in enumerate(zip(texts, desk.texts(), strict=True)):
        if id % 3 == 0:
            assert not desk.logprobs[id]
            continue
        logs_TV = forward_logprobs(ids + text)
        check_logprobs(tuple(desk.logprobs[id]), logs_TV[len(ids) - 1 : -1], text, 3 if id % 3 == 2 else 0)
        if id % 3 == 1:
            assert id not in desk.prompt_logprobs
            continue
        (of_prompt,) = desk.prompt_logprobs[id]
        check_logprobs(of_prompt, logs_TV[: len(ids) - 1], ids[1:], 2)


def test_a_changed_or_drawn_token_has_the_model_s_own_log_probability() -> None:
    ids, desk = prompts(1, seed=5)[0], LogprobsDesk()
    with running(SCARCE, PAGED, desk=desk) as (engine, _):
        engine.submit(submission(0, ids, sampling=Sampling(1.0, seed=4, logit_bias=((5, 9.0),), logprobs=0), force=12))
        desk.wait(1)
    text = desk.texts()[0]
    logs_TV = forward_logprobs(ids + text)
    check_logprobs(tuple(desk.logprobs[0]), logs_TV[len(ids) - 1 : -1], text, 0)


@pytest.mark.parametrize("sampling", [Sampling(logit_bias=((VOCABULARY, 1.0),)), Sampling(stop_tokens=(-1,))])
def test_tokens_outside_the_vocabulary_are_refused(sampling: Sampling) -> None:
    with running(SCARCE, PAGED) as (engine, desk):
        with pytest.raises(InputError, match=f"must be a token from 0 to {VOCABULARY - 1}"):
            engine.submit(submission(0, prompts(1)[0], sampling=sampling))
        assert not desk.last
