"""The pictures of a stream's bins show the figures that they are made of."""

from __future__ import annotations

from io import BytesIO

import pytest

from flows.bins.figures import gains, padding, staircase
from flows.bins.plan import Choice, ShapeTrial
from tests.fixtures.bins.tiny import some_bins

CHOICE = Choice((16, 32, 64), (0.004, 0.0035, 0.003, 0.0029), 0.002)


def drawn(figure) -> int:
    stream = BytesIO()
    figure.savefig(stream, format="png")
    return len(stream.getvalue())


def labels(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]


def test_the_staircase_shows_the_edges_that_have_static_runtimes_and_dotted_those_that_have_none():
    bins = some_bins()
    figure = staircase(bins, CHOICE, {16: 0.001, 32: 0.002, 64: 0.003}, bins.dynamic)
    axes = figure.axes[0]
    edges = {line.get_xdata()[0]: line.get_linestyle() for line in axes.lines if len(set(line.get_xdata())) == 1}
    assert edges == {16: "-", 32: ":", 64: "-"}
    assert "2 of 3 bins have static runtimes" in axes.get_title()
    assert labels(figure) == ["static, batch 1", "dynamic"]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([1, 2, 3])
    assert sum(bar.get_height() for bar in figure.axes[1].patches) == pytest.approx(1)
    assert drawn(figure)


def test_the_cost_of_padding_is_drawn_by_number_of_runtimes_with_the_chosen_one():
    figure = padding(some_bins(), CHOICE)
    star = next(line for line in figure.axes[0].lines if line.get_marker() == "*")
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (3, pytest.approx(3.0))
    assert labels(figure)[-1] == "chosen: 3"
    assert drawn(figure)


def test_static_shapes_are_drawn_as_shares_of_the_dynamic_runtime_filled_where_kept():
    weighed = [
        ShapeTrial(16, 1, 0.001, 0.002, True),
        ShapeTrial(64, 1, 0.003, 0.002, False),
        ShapeTrial(64, 2, 0.01, 0.0, False),
    ]
    figure = gains(some_bins(), weighed)
    points = {line.get_ydata()[0]: line.get_fillstyle() for line in figure.axes[0].lines if line.get_marker() == "o"}
    assert points == {0.5: "full", 1.5: "none"}
    assert labels(figure) == ["batch 1", "batch 2"]
    assert drawn(figure)
