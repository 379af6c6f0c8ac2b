"""A tenant's requests a second, and those that wait, stay within its limits, and other tenants notice nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.http.access.keys import Tenant
from serving.http.access.limits import TenantLimits, TokenBucket
from serving.http.api_errors import ApiError


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


def test_of_each_tenant_so_many_may_wait():
    limits, tenant = TenantLimits(), Tenant(max_waiting=2)
    for _ in range(2):
        limits.enter("a", tenant, 0.0)
    with pytest.raises(ApiError, match="2 requests wait") as raised:
        limits.enter("a", tenant, 0.0)
    assert (raised.value.status, raised.value.code) == (429, "too_many_waiting")
    limits.enter("b", tenant, 0.0)
    limits.leave("a")
    limits.enter("a", tenant, 0.0)
    assert limits.waiting == {"a": 2, "b": 1}


def test_a_tenant_beyond_its_rate_is_told_when_to_come_back_and_does_not_count_as_waiting():
    limits, tenant = TenantLimits(), Tenant(rate=1.0)
    limits.enter("a", tenant, 0.0)
    with pytest.raises(ApiError, match="1 requests a second") as raised:
        limits.enter("a", tenant, 0.25)
    assert (raised.value.code, raised.value.retry_after) == ("rate_limited", 0.75)
    assert limits.waiting["a"] == 1
    limits.enter("b", tenant, 0.25)
    limits.enter("a", Tenant(rate=5.0), 0.25)  # its limit was raised
