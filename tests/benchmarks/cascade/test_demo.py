"""The demo's sizes are settings of the flow, and its picture is drawn even where nothing was answered."""

from __future__ import annotations

import pytest

from benchmarks.cascade.demo import OVERRIDES, load_figure
from benchmarks.cascade.replay import Loaded
from benchmarks.load_generator import Reply
from flows.cascade import config
from pliant.protocol import Request
from pliant.report import Observation


def test_the_demos_sizes_are_settings_of_the_flow_and_its_large_level_reads_more_than_it_learns_from():
    quick = config.read(None, OVERRIDES)
    assert quick.tasks == config.CascadeFlowConfig().tasks, "the load takes held-out texts of the usual split"
    small, large = quick.levels_of(quick.tasks[0])
    assert (small.name, large.name) == ("small", "large")
    assert large.classifier.train_length is not None
    assert large.classifier.train_length < large.classifier.max_length


@pytest.mark.parametrize("answered", [0.1, None])
def test_the_picture_is_drawn_whether_or_not_anything_was_answered(answered):
    request = Request(0, 0.0, 0.25, "topics")
    reply = Reply(Observation(request, answered, None if answered is None else True, 0, None), 200, 0.0, 0.0)
    left, right = load_figure(Loaded(1.0, 1.4, {"default": [reply], "only large": [reply]}, ("small",))).axes
    assert len(left.lines) == len(right.lines) == 2
