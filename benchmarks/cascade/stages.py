"""What the demo of cascade does and what each stage costs (see benchmarks/demo/estimate.py). Imports nothing heavy.

Stages of less than a second count to those after them.
"""

from __future__ import annotations

from benchmarks.demo.estimate import Stage
from benchmarks.demo.stages import TEXTS

FLOW = "train, calibrate, profile, plan, judge, publish"
LOAD = "the same texts with the cascade and with its large model"
PAGE = "/v1/docs"
STAGES = (
    TEXTS,
    Stage("package: train small", tensor=2.8, python=6.0),
    Stage("package: train large", tensor=3.0, python=5.6),
    Stage("package: outputs, profiling", tensor=0.6, python=2.1),
    Stage("package: outputs, test", tensor=0.8, python=1.9),
    Stage("package: latency profile", tensor=0.2, python=0.8),
    Stage("package: gate", python=0.6),
    Stage("publish", tensor=0.1, python=1.0),
    Stage("the cascade and its large model under one load", python=9.4, wait=16.5),
)
