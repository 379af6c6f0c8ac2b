"""What the demo of packing does and what each stage costs (see benchmarks/demo/estimate.py). Imports nothing heavy.

Stages of less than a second count to those after them.
"""

from __future__ import annotations

from benchmarks.demo.estimate import Stage
from benchmarks.demo.stages import TEXTS

FLOW = "train, observe lengths, predict, profile, plan, judge, publish"
LOAD = "the same chats, packed by predicted lengths and first come, first served"
PAGE = "/v1/docs"
STAGES = (
    TEXTS,
    Stage("docstrings: generator", tensor=2.1, python=16.0),
    Stage("docstrings: lengths", python=10.0),
    Stage("docstrings: predictor", tensor=0.1, python=2.9),
    Stage("docstrings: step profile", python=2.0),
    Stage("docstrings: plan", python=1.8),
    Stage("publish", python=1.6),
    Stage("packing: chats in turns", pair=12.0, wait=33.0),
)
