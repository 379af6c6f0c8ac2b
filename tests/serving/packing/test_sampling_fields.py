"""Fields that change scores, ends or log-probabilities reach the request, within their limits."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.packing.engine.submission import Sampling
from tests.serving.packing.test_fields import chat, complete, say


def test_every_field_that_changes_scores_ends_or_log_probabilities_reaches_the_request():
    request = complete(
        min_p=0.25,
        repetition_penalty=1.5,
        frequency_penalty=-2,
        presence_penalty=2,
        logit_bias={"5": -100, "0": 7.5},
        min_tokens=3,
        stop_token_ids=[9, 4, 9],
        ignore_eos=True,
        logprobs=2,
        echo=True,
        n=2,
        best_of=3,
        seed=1,
    )
    assert request.sampling == Sampling(
        temperature=1.0,
        seed=1,
        min_p=0.25,
        repetition_penalty=1.5,
        frequency_penalty=-2.0,
        presence_penalty=2.0,
        logit_bias=((5, -100.0), (0, 7.5)),
        min_tokens=3,
        stop_tokens=(9, 4),
        ignore_eos=True,
        logprobs=2,
        prompt_logprobs=2,
    )
    assert (request.choices, request.best_of, request.logprobs) == (2, 3, True)
    assert request.prompts[0].special and not complete(add_special_tokens=False).prompts[0].special


def test_log_probabilities_are_a_number_for_completions_and_a_flag_with_a_number_for_chats():
    for request, expected in (
        (complete(), (False, -1, -1)),
        (complete(logprobs=False), (False, -1, -1)),
        (complete(logprobs=0), (True, 0, -1)),
        (complete(logprobs=20), (True, 20, -1)),
        (complete(logprobs=1, echo=True, max_tokens=0), (True, 1, 1)),
        (complete(best_of=2), (False, 0, -1)),
        (chat(say("a"), logprobs=True), (True, 0, -1)),
        (chat(say("a"), logprobs=True, top_logprobs=20), (True, 20, -1)),
        (chat(say("a"), logprobs=False, top_logprobs=0), (False, -1, -1)),
    ):
        sampling = request.sampling
        assert (request.logprobs, sampling.logprobs, sampling.prompt_logprobs) == expected
    for fields, sentence in (
        ({"logprobs": 1}, "logprobs is 1, but must be true or false"),
        ({"top_logprobs": 3}, "top_logprobs is 3, but must be left out unless logprobs is true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs is 21, but must be a whole number from 0 to 20"),
    ):
        with pytest.raises(InputError, match=sentence):
            chat(say("a"), **fields)


def test_no_token_may_be_wanted_only_where_the_prompt_is_repeated():
    request = complete(max_tokens=0, echo=True)
    assert request.silent and request.known_length
    with pytest.raises(InputError, match="max_tokens is 0, but must be a whole number from 1 on"):
        complete(max_tokens=0)


def test_a_length_is_known_where_nothing_ends_an_output_before_its_limit():
    assert complete(ignore_eos=True).known_length
    assert not complete().known_length
    for fields in ({"stop": "x"}, {"stop_token_ids": [4]}):
        assert not complete(ignore_eos=True, **fields).known_length
