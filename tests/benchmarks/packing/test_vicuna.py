"""Forecasts of Vicuna's lengths: nobody is predicted by who has seen it, and half of the rows is for fitting alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from pliant.benchmarks.packing.vicuna import cached, crossed, missing, vicuna
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES
from tests.fixtures.packing.scenarios import with_forecasts

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def by_characters(prompts, tokens, progress):
    """Prompts and answers are about as long as each other, it thinks."""
    progress(1, 1)
    scale = tokens.mean() / np.mean([len(prompt) for prompt in prompts])
    spread = np.exp(np.linspace(-1, 1, len(QUANTILES)))
    return lambda asked: np.array([max(len(prompt), 1) * scale for prompt in asked])[:, None] * spread


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


@needs_data
def test_vicunas_forecasts_know_something_of_its_lengths_and_not_too_much(tmp_path):
    """The reference answers' own lengths, which no predictor knows, have a tau of 0.55 with Vicuna's."""
    found = vicuna(cached(tmp_path, train=by_characters, way="by characters"))
    assert len(found.buckets) == 5000 and found.context == 2048
    assert 0.0 < kendalltau(found.forecasts_NL[:, MEDIAN], found.lengths.output).statistic < 0.55
    assert furthest_off(found) < 0.03
    assert found.lengths.prompt.mean() == pytest.approx(20, abs=5)
    assert (np.diff(found.forecasts_NL, axis=1) >= 0).all() and MEDIAN == 3
