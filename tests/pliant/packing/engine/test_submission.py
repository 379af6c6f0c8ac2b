"""Texts to generate whose counts do not fit together are refused; after a crash the rest is what is still to come."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from pliant.errors import InputError
from pliant.packing.engine.submission import Progress, Sampling, Submission
from pliant.packing.scheduling.request import Prompt
from tests.fixtures.packing.values import is_frozen

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
    ],
)
def test_sampling_beyond_its_limits_is_refused(field, value, limit):
    with pytest.raises(InputError, match=f"^{field} is {value}, but must be {limit}$"):
        Sampling(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("temperature", 0.0), ("top_p", 1.0), ("top_p", 1e-9), ("top_k", 0)])
def test_sampling_at_its_limits_is_taken(field, value):
    assert getattr(Sampling(**{field: value}), field) == value


@pytest.mark.parametrize(("ids", "generated"), [((5,), 0), ((5, 6, 7), 0), ((5, 6), 1), ((5, 6, 7), 2), ((5,), -1)])
def test_the_tokens_are_those_of_the_prompt_and_those_generated_before(ids, generated):
    with pytest.raises(InputError, match=f"^ids is {len(ids)} tokens, but must be the prompt's 2 and {generated} made"):
        Submission(PROMPT, ids, generated=generated)


@pytest.mark.parametrize(
    ("generated", "force", "max_tokens"), [(0, 0, 10), (9, 0, 10), (0, 10, 10), (0, 1, 1), (3, 4, 4)]
)
def test_at_least_one_token_is_to_come(generated, force, max_tokens):
    submission = Submission(PROMPT, tuple(range(2 + generated)), generated=generated, force=force)
    assert submission.max_tokens == max_tokens


@pytest.mark.parametrize(("generated", "force"), [(10, 0), (0, 11), (4, 4), (5, 4), (0, -1)])
def test_more_than_the_limit_or_nothing_to_come_is_refused(generated, force):
    with pytest.raises(InputError, match=f"^tokens to make is .* above {generated} and at most 10$"):
        Submission(PROMPT, tuple(range(2 + generated)), generated=generated, force=force)


def test_before_a_crash_the_prompt_is_as_it_came():
    assert Submission(PROMPT, (5, 6)).remaining() is PROMPT


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


def test_who_says_nothing_more_takes_the_likeliest_tokens_up_to_the_limit():
    assert Sampling() == Sampling(0.0, 1.0, 0, 0)
    assert Submission(PROMPT, (5, 6)) == Submission(PROMPT, (5, 6), Sampling(0.0, 1.0, 0, 0), 0, 0)
    assert Progress(1, (2,), "", 0.5, 0, 0, 1) == Progress(1, (2,), "", 0.5, 0, 0, 1, 0.0)
    assert all(map(is_frozen, (Sampling(), Submission(PROMPT, (5, 6)), Progress(1, (), "", 0.0, 0, 0, 0))))


def test_counts_that_do_not_fit_are_refused_in_whole_sentences():
    for ids, more, sentence in (
        ((5,), {}, "ids is 1 tokens, but must be the prompt's 2 and 0 made"),
        ((5,), {"generated": -1}, "ids is 1 tokens, but must be the prompt's 2 and -1 made"),
        ((5, 6), {"force": 11}, "tokens to make is 11, but must be above 0 and at most 10"),
        ((5, 6, 7), {"generated": 1, "force": 1}, "tokens to make is 1, but must be above 1 and at most 10"),
    ):
        with pytest.raises(InputError) as caught:
            Submission(PROMPT, ids, **more)
        assert str(caught.value) == sentence


def test_after_one_token_a_length_of_one_is_still_to_come():
    rest = Submission(replace(PROMPT, bucket=1, exact=1), (5, 6, 7), generated=1).remaining()
    assert (rest.tokens, rest.limit, rest.bucket, rest.exact) == (3, 9, 1, 1)
    assert rest.forecast == (1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
