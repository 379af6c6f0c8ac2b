"""Penalties, biases and log-probabilities, against plain Python and against the model's own forward pass."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.sampling import LogitChanges, arguments, change_logits, draw, logprobs_of
from pliant.packing.engine.submission import Progress, Sampling, TokenLogprobs
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
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


def plain_change(scores: list[float], changes: LogitChanges, tokens: list[int]) -> list[float]:
    """Return changed scores, entry by entry."""
    output, bias = tokens[changes.prompt_tokens :], dict(changes.logit_bias)
    changed = []
    for token, score in enumerate(scores):
        score += bias.get(token, 0.0)
        if len(output) < changes.min_tokens and token in changes.ends:
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
    LogitChanges,
    repetition_penalty=st.floats(0.25, 4, width=32),
    frequency_penalty=finite,
    presence_penalty=finite,
    logit_bias=st.dictionaries(tokens, finite).map(lambda bias: tuple(bias.items())),
    min_tokens=st.integers(0, 4),
    ends=st.lists(tokens, max_size=3).map(tuple),
)
rows = st.tuples(
    st.lists(finite, min_size=16, max_size=16),
    changes,
    st.lists(tokens, min_size=1, max_size=6),
    st.lists(tokens, max_size=6),
)


@settings(deadline=None)
@given(rows)
def test_scores_change_as_in_plain_python(row: tuple[list[float], LogitChanges, list[int], list[int]]) -> None:
    scores, changes, prompt, output = row
    changes, tokens = replace(changes, prompt_tokens=len(prompt)), [*prompt, *output]
    scores_V = torch.tensor(scores)
    change_logits(scores_V, changes, tokens)
    torch.testing.assert_close(scores_V, torch.tensor(plain_change(scores, changes, tokens)), rtol=1e-5, atol=1e-5)


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
    drawn = draw(scores_1V.expand(600, -1), [(arguments(each, 4), 3) for each in wanted])
    assert set(drawn[:300]) == {0, 1}
    assert set(drawn[300:]) == {0, 1, 2}


def reference(ids: tuple[int, ...], sampling: Sampling, limit: int = LIMIT) -> tuple[int, ...]:
    """Return a greedy text, each token by a forward pass over everything before it."""
    model, output = load_generator(tiny_generator()), list[int]()
    ends = (*(() if sampling.ignore_eos else ENDS), *sampling.stop_tokens)
    penalties = sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty
    changes = LogitChanges(*penalties, sampling.logit_bias, sampling.min_tokens, ends, len(ids))
    while len(output) < limit and not (output and output[-1] in ends):
        with torch.inference_mode():
            scores = model(torch.tensor([[*ids, *output]])).logits[0, -1].tolist()
        changed = plain_change(scores, changes, [*ids, *output])
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
