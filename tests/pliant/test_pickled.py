"""Messages between processes are the same behind a pickle, and no field is looked up for it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from pliant.packing.engine.logprobs import TokenLogprobs
from pliant.packing.engine.submission import Progress, Sampling, Submission
from pliant.pickled import pickled_by_fields
from tests.fixtures.packing.samples import prompt

PROMPT = prompt(3, tokens=2, ttft=0.5, tenant="ours", priority=-4)


@pytest.mark.parametrize(
    "value",
    [
        PROMPT,
        Sampling(temperature=0.5, seed=7, logit_bias=((3, -1.0),), stop_tokens=(4,)),
        Submission(PROMPT, (5, 6), Sampling(min_tokens=3), 0, 0),
        Progress(3, (5, 6), "stop", 0.1, 1, 2, 3, logprobs=(TokenLogprobs(-0.5, ((1, -0.5),)),)),
    ],
)
def test_a_message_is_the_same_behind_a_pickle(value):
    assert pickle.loads(pickle.dumps(value, protocol=5)) == value
    assert value.__reduce__()[0] is type(value)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 2


def test_an_object_is_made_by_its_class_from_its_fields_in_their_order():
    assert Pair(1).__reduce__() == (Pair, (1, 2)) and pickle.loads(pickle.dumps(Pair(1))) == Pair(1)
