"""The picture of how classifiers learnt shows the figures that it is made of."""

from __future__ import annotations

from io import BytesIO

from flows.curves import figure
from training.classifier import Curves


def test_the_training_curves_of_every_model_are_drawn():
    drawn = figure({"small": Curves((2.0, 1.0), (1.5, 1.2), (0.5, 0.6)), "large": Curves((1.0,), (0.9,), (0.8,))})
    loss, score = drawn.axes
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["small", "large"]
    assert [line.get_ydata().tolist() for line in loss.lines] == [[2.0, 1.0], [1.5, 1.2], [1.0], [0.9]]
    assert [line.get_ydata().tolist() for line in score.lines] == [[0.5, 0.6], [0.8]]
    stream = BytesIO()
    drawn.savefig(stream, format="png")
    assert stream.tell()
