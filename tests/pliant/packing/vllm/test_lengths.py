"""Without a predictor, lengths are those of the outputs so far to prompts of a similar length."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.packing.scheduling.forecast import MEDIAN as MIDDLE
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.vllm.forecasts import AFRESH, ENOUGH, MEDIAN, PRIOR, SPREAD, WINDOW, LearnedLengths


def test_before_any_output_has_ended_a_log_normal_is_assumed():
    forecast = LearnedLengths().forecast(7)
    assert forecast == PRIOR and len(PRIOR) == len(QUANTILES) and PRIOR[MIDDLE] == MEDIAN
    drawn = np.exp(np.random.default_rng(0).normal(np.log(MEDIAN), SPREAD, 400_000))
    assert np.quantile(drawn, QUANTILES) == pytest.approx(PRIOR, rel=0.03)


def test_prompts_of_a_class_count_on_their_own_once_enough_of_them_have_ended():
    lengths = LearnedLengths()
    for _ in range(ENOUGH - 1):
        lengths.add(10, 5)
    for _ in range(200):
        lengths.add(1000, 500)
    assert lengths.forecast(15)[MIDDLE] == 500  # of all
    lengths.add(8, 5)
    assert lengths.forecast(15) == (5,) * len(QUANTILES)
    assert lengths.forecast(16)[MIDDLE] == 500 and lengths.forecast(1000)[0] == 500


def test_it_follows_the_latest_outputs_and_forgets_old_ones():
    lengths = LearnedLengths()
    for _ in range(WINDOW):
        lengths.add(10, 5)
    for count in range(1, WINDOW + AFRESH):
        lengths.add(10, 50)
        if count == AFRESH:
            assert lengths.forecast(10)[0] == 5 and lengths.forecast(10)[-1] > 5
    assert lengths.forecast(10) == lengths.marginal() == (50,) * len(QUANTILES)
