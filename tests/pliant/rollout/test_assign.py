"""Sticky assignment: stable, even, and growing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from pliant.rollout.assign import is_copied, position

SHARES = st.floats(0, 1)


def test_a_key_keeps_the_position_that_it_had_in_every_process_and_version():
    assert position("tokens-7", "client-1") == 0.20001289642556108
    assert position("tokens-7", "") == 0.6467936988922319


def test_keys_are_spread_evenly():
    counts = np.bincount([int(20 * position("release", f"key-{key}")) for key in range(20_000)], minlength=20)
    assert len(counts) == 20
    assert np.sum((counts - 1000) ** 2 / 1000) < chi2.ppf(0.999, 19)


@given(st.text(), st.text(), SHARES, SHARES)
def test_a_growing_share_only_adds_keys(salt, key, first, second):
    low, high = sorted((first, second))
    assert is_copied(salt, key, low) <= is_copied(salt, key, high)


@given(st.text(), st.text(alphabet=st.characters()))
def test_no_share_is_nobody_and_the_whole_is_everybody(salt, key):
    assert not is_copied(salt, key, 0.0)
    assert is_copied(salt, key, 1.0)
    assert 0 <= position(salt, key) < 1
