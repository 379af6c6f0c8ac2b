"""The pictures of a cascade show the figures that they are made of."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from flows.cascade.figures import candidates, reliability
from pliant.cascade.artifact import Candidate, Cascade, LevelProfile
from pliant.cascade.calibrate import reliability as measured
from pliant.latency import LatencyTable

TABLE = LatencyTable((16, 64), (1, 8), ((0.001, 0.004), (0.002, 0.012)))


def drawn(figure):
    """The size of the picture that it makes."""
    stream = BytesIO()
    figure.savefig(stream, format="png")
    return len(stream.getvalue())


def labels(figure):
    return [text.get_text() for legend in (*figure.legends, *(a.get_legend() for a in figure.axes)) if legend
            for text in legend.get_texts()]  # fmt: skip


def test_a_reliability_diagram_shows_both_errors_and_fifteen_bins():
    confidence = np.linspace(0.35, 1, 40)
    before = measured(confidence, np.arange(40) % 2 == 0)
    after = measured(np.full(40, 0.5), np.arange(40) % 2 == 0)
    figure = reliability("small", before, after)
    assert labels(figure) == [f"before: ECE {100 * before.error:.1f}%", "after: ECE 0.0%"]
    assert [len(axes.patches) for axes in figure.axes] == [15, 15]
    line = figure.axes[0].lines[1]
    assert np.array_equal(line.get_ydata(), before.accuracy[before.count > 0])
    assert drawn(figure)


def cascade(**changed):
    level = LevelProfile("small", "sha256:0", 1.5, (), 0.9, 0.1, 0.02, TABLE)
    points = (
        Candidate("default", (0, 1), (), 0.93, 0.915, 0.004, (1.0, 0.3)),
        Candidate("single", (1,), (), 0.94, 0.92, 0.009, (1.0,)),
    )
    settings = {"tolerance": 0.0, "device": "cpu-1", "levels": (level,), "candidates": points, "target": 0.925}
    tested = {"test_accuracy": {"default": 0.928}, "confidence": 0.95, "data": "sha256:1"}
    return Cascade(**{"task": "package", "classes": ("a", "b"), "pair": False} | settings | tested | changed)


def test_the_candidates_stand_at_their_seconds_and_accuracy():
    figure = candidates(cascade())
    axes = figure.axes[0]
    assert labels(figure) == ["target 0.925", "default", "single"]
    points = [tuple(container.lines[0].get_xydata()[0]) for container in axes.containers]
    assert points == [pytest.approx((4.0, 0.93)), pytest.approx((9.0, 0.94))]
    crosses = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [pytest.approx((4.0, 0.928))]
    assert drawn(figure)


def test_a_candidate_line_ends_at_its_promise():
    (_, _, (bars,)) = candidates(cascade()).axes[0].containers[0].lines
    assert bars.get_segments()[0][:, 1].tolist() == pytest.approx([0.915, 0.93])
