"""The pictures of packing show the figures that they are made of."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from flows.packing.figures import lengths, policies, predicted, steps
from flows.packing.plan import Choice, PolicyFigures
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES
from pliant.packing.scheduling.iteration_cost import Point
from tests.fixtures.packing.tiny import STEPS, some_packing


def drawn(figure) -> int:
    """The size of the picture that it makes."""
    stream = BytesIO()
    figure.savefig(stream, format="png")
    return len(stream.getvalue())


def test_every_held_out_prompt_stands_at_its_median_and_its_length():
    packing = some_packing()
    figure = predicted(packing)
    (_, points) = figure.axes[0].collections
    expected = np.stack([packing.forecasts[:, MEDIAN], packing.output_tokens], axis=1)
    assert np.allclose(points.get_offsets(), expected)
    assert drawn(figure)


def test_the_coverage_is_the_share_of_outputs_within_each_quantile():
    packing = some_packing()
    histogram, coverage = lengths(packing).axes
    assert sum(bar.get_height() for bar in histogram.patches) == len(packing.output_tokens)
    line = coverage.lines[1]
    assert line.get_xdata().tolist() == list(QUANTILES)
    expected = [(packing.output_tokens <= packing.forecasts[:, at]).mean() for at in range(len(QUANTILES))]
    assert line.get_ydata().tolist() == pytest.approx(expected)


def test_measured_iterations_stand_over_the_fitted_ones():
    points = [Point(4, 4, 100, 0.004), Point(40, 5, 200, 0.006)]
    figure = steps(points, STEPS, "cpu")
    offsets = figure.axes[0].collections[0].get_offsets()
    assert offsets[:, 1].tolist() == [4.0, 6.0]
    assert offsets[:, 0].tolist() == pytest.approx(
        [1000 * float(STEPS.seconds(p.queries, p.sequences, p.cached)) for p in points]
    )
    assert drawn(figure)


def test_policies_are_compared_by_mean_tail_and_what_is_computed_again():
    rows = (
        PolicyFigures("default", 1, 1, 0.2, 0.9, 100, 0.02, 3, 8, 0),
        PolicyFigures("paged", 1, 1, 0.3, 0.8, 90, 0.1, 30, 9, 0),
    )
    figure = policies(Choice(1, 1, True, rows[:1], rows))
    heights = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]
    assert heights == [[0.2, 0.3], [0.9, 0.8], [pytest.approx(2), pytest.approx(10)]]
    assert "simulated" in figure.get_suptitle()
    assert drawn(figure)
