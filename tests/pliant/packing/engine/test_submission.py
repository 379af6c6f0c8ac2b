"""Texts to generate whose counts do not fit together are refused; after a crash the rest is what is still to come."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from pliant.errors import InputError
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.request import Prompt

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
