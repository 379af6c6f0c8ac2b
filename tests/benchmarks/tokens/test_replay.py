"""The comparison of two replays, from replies that are made up; and the load that both replay."""

from __future__ import annotations

import pytest

from tests.fixtures.load_samples import LOAD, answered, replayed


def test_the_ratio_of_a_half_counts_that_half_alone():
    compared = replayed(answered, lambda r: answered(r, correct=r.id not in LOAD.loud))
    assert compared.ratio(loud=False) == pytest.approx(1.0)
    assert compared.ratio(loud=True) > 1e6
    assert 1.0 < compared.ratio() < 5.0
