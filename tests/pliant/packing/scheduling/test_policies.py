"""What policies reserve, put first and preempt, by hand; the scheduler's tests judge what comes of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.policies import LARGEST, make, size
from pliant.packing.scheduling.policy import POLICIES, Recent, Rules
from tests.fixtures.packing.samples import prompt

CONTEXT = 64
RECENT = Recent(size=10.0, delay=2.0)


def policy(name: str, **rest):
    return make(Rules(name, CONTEXT, **rest))


@pytest.mark.parametrize(
    ("name", "request_", "reserved"),
    [
        ("orca", {"tokens": 10, "limit": 20}, 30),
        ("orca", {"tokens": 10, "limit": 100}, CONTEXT),
        ("s3", {"tokens": 10, "limit": 20, "bucket": 8}, 18),
        ("s3", {"tokens": 10, "limit": 20, "bucket": 32}, 30),
        ("s3", {"tokens": 10, "limit": 20}, 30),
        ("oracle", {"tokens": 10, "limit": 20, "exact": 7}, 17),
        ("oracle", {"tokens": 10, "limit": 5, "exact": 7}, 15),
    ],
)
def test_what_is_reserved_is_prompt_and_output_within_limit_and_context(name, request_, reserved):
    assert policy(name).reserve(prompt(0, **request_)) == reserved


def test_the_oracle_must_be_told_the_length():
    with pytest.raises(InputError, match="exact is 0, but must be the output's tokens"):
        policy("oracle").reserve(prompt(0))
    assert policy("oracle").reserve(prompt(0, tokens=4, exact=1)) == 5


def test_the_largest_reservation_goes_first_or_who_came_first():
    early, late = prompt(1, arrival=1.0), prompt(2, arrival=2.0)
    for name in ("s3", "oracle"):
        assert policy(name).priority(late, (), 30, RECENT) < policy(name).priority(early, (), 20, RECENT)
        assert policy(name).priority(early, (), 20, RECENT) < policy(name).priority(late, (), 20, RECENT)
    for name in ("orca", "paged"):
        assert policy(name).priority(early, (), 20, RECENT) < policy(name).priority(late, (), 30, RECENT)


def test_by_default_a_request_is_put_back_by_its_size_up_to_a_limit():
    default = policy("default", reorder_patience=1.5)
    typical, twice, huge = ((float(tokens),) * 8 for tokens in (2, 4, 1000))
    assert size(prompt(0, tokens=4), typical) == 10.0
    assert default.priority(prompt(0, tokens=4, arrival=7.0), typical, 0, RECENT) == (0, 7.0 + 1.5 * 2.0 * 1.0, 0)
    assert default.priority(prompt(0, tokens=4, arrival=7.0), twice, 0, RECENT) == (0, 7.0 + 1.5 * 2.0 * 2.4, 0)
    assert default.priority(prompt(0, tokens=4), huge, 0, RECENT) == (0, 1.5 * 2.0 * LARGEST, 0)
    assert default.priority(prompt(0, tokens=4, utility=2.0), typical, 0, RECENT) == (0, 1.5, 0)
    assert default.priority(prompt(0, utility=0.0), typical, 0, RECENT) == (0, 1.5 * 2.0 * 5.0, 0), "as the largest"
    assert default.priority(prompt(9, offline=True, utility=2.0), typical, 0, RECENT) == (1001, -0.5, 9)


def test_by_default_offline_requests_come_last_the_largest_first():
    default = policy("default")
    small, large = ((float(tokens),) * 8 for tokens in (2, 20))
    offline = [default.priority(prompt(id, offline=True), row, 0, RECENT) for id, row in ((1, large), (2, small))]
    online = default.priority(prompt(3, arrival=1e6), large, 0, RECENT)
    assert sorted([*reversed(offline), online]) == [online, *offline]


class Running:
    """Rows of running sequences by column."""

    def __init__(self, **columns: list[int]) -> None:
        self._columns = {name: np.array(values) for name, values in columns.items()}
        self.count = len(next(iter(columns.values())))
        self.key = np.array(columns.get("key", []), dtype=float)

    def column(self, name: str):
        return self._columns[name]


def test_s3_preempts_what_outgrows_its_reservation_and_knows_when_that_will_be():
    running = Running(id=[4, 5, 6, 7, 8], cached=[9, 10, 11, 7, 7], reserved=[10] * 5, unread=[0, 0, 0, 3, 4])
    assert policy("s3").outgrown(running) == [5, 6, 8]
    assert policy("s3").steps_until_outgrown(Running(cached=[3, 7], reserved=[10, 9])) == 2
    assert policy("s3").steps_until_outgrown(SimpleNamespace(count=0)) is None
    assert policy("orca").outgrown(running) == [] and policy("orca").steps_until_outgrown(running) is None


def test_whoever_was_admitted_last_is_preempted_first_and_one_always_stays():
    running = Running(id=[4, 5, 6], turn=[2, 3, 1])
    needed = np.array([3, 3, 3])
    paged = policy("paged")
    assert [paged.victims(running, needed, pages) for pages in (9, 8, 6, 5, 0)] == [[], [5], [5], [5, 4], [5, 4]]


def test_by_default_the_last_in_priority_is_preempted_first():
    running = Running(id=[4, 5, 6, 7], turn=[1, 2, 3, 4], group=[0, 1, 0, 0], key=[5, 1, 7, 7])
    assert policy("default").last_first(running).tolist() == [1, 3, 2, 0]


def test_every_policy_has_a_name_a_sentence_and_its_own_needs():
    assert {name for name in POLICIES if policy(name).needs_exact} == {"oracle"}
    assert {name for name in POLICIES if policy(name).reserves} == {"s3", "orca", "oracle"}
    assert {name for name in POLICIES if policy(name).fair} == {"default"}


def test_the_last_of_equal_keys_to_be_admitted_is_preempted_first():
    running = Running(id=[4, 5, 6], turn=[2, 3, 1], group=[0, 0, 0], key=[7, 7, 7])
    assert policy("default").last_first(running).tolist() == [1, 0, 2]
    assert policy("paged").last_first(running).tolist() == [1, 0, 2]


def test_a_reservation_is_outgrown_by_the_next_token_of_who_generates_and_s3_knows_of_no_other():
    running = Running(id=[4, 5], cached=[9, 9], reserved=[10, 10], unread=[0, 1])
    assert policy("s3").outgrown(running) == []
    assert policy("s3").steps_until_outgrown(running) == 1
    assert policy("oracle").outgrown(Running(id=[4], cached=[10], reserved=[10], unread=[0])) == []
