"""Forecasts of Vicuna's lengths: nobody is predicted by who has seen it, and half of the rows is for fitting alone."""

from __future__ import annotations

import numpy as np

from pliant.benchmarks.packing.vicuna import crossed
from pliant.packing.scheduling.forecast import QUANTILES
from tests.fixtures.packing.scenarios import with_forecasts


def test_no_prompt_is_predicted_by_a_predictor_that_was_trained_with_it():
    def train(prompts, tokens, progress):
        known = set(prompts)
        return lambda asked: np.array([[float(prompt in known)] for prompt in asked])

    prompts = [f"prompt {i}" for i in range(101)]
    assert not crossed(prompts, np.arange(101), train).any()


def furthest_off(forecasts) -> float:
    """Return by how much the share of outputs at or below a forecast quantile is off at most."""
    below = forecasts.lengths.output[:, None] <= forecasts.forecasts_NL
    return float(np.abs(below.mean(axis=0) - QUANTILES).max())


def test_conditional_quantiles_cover_what_they_say_on_rows_they_were_not_fitted_on():
    assert furthest_off(with_forecasts(8000)) < 0.03
