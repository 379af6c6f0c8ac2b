"""A tenant's requests a second, and those that wait, stay within its limits, and other tenants notice nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.serving.http.access.limits import TokenBucket


@given(st.integers(1, 8), st.lists(st.integers(0, 16), min_size=1, max_size=60))
def test_in_no_stretch_of_time_pass_more_than_the_rate_and_one_burst(rate, gaps):
    bucket, now, passed = TokenBucket(rate), 0.0, []
    for gap in gaps:
        now += gap / 16
        wait = bucket.take(now)
        if wait == 0:
            passed.append(now)
        else:
            assert 0 < wait <= 1 / rate
    for first, start in enumerate(passed):
        for last, end in enumerate(passed[first:], start=first):
            assert last - first + 1 <= rate + rate * (end - start) + 1e-6


def test_after_the_seconds_that_are_named_the_next_one_passes():
    bucket = TokenBucket(2.0)
    assert [bucket.take(10.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert bucket.take(10.25) == 0.25
    assert bucket.take(10.5) == 0.0


def test_a_rate_below_one_lets_one_pass_at_once():
    bucket = TokenBucket(0.1)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(0.0) == pytest.approx(10.0)


def test_several_at_once_need_as_many_and_never_more_than_can_gather():
    bucket = TokenBucket(1.0, burst=4.0)
    assert bucket.take(0.0, 3.0) == 0.0
    assert bucket.take(0.0, 3.0) == 2.0
    assert bucket.take(0.0, 9.0) == 3.0
