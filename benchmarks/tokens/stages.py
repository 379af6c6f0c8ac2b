"""What the demo of tokens does and what each stage costs (see benchmarks/demo/estimate.py). Imports nothing heavy.

Stages of less than a second count to those after them.
"""

from __future__ import annotations

from benchmarks.demo.estimate import Stage

FLOW = "train, profile, judge, publish"
LOAD = "the same bursty load with gamma 0 and with adaptation"
PAGE = "/v1/docs"
STAGES = (
    Stage("foundation", tensor=4.9, python=1.5),
    Stage("task digit", tensor=2.5),
    Stage("task loops", tensor=2.2),
    Stage("latency profile", tensor=0.6, python=1.5),
    Stage("gate", python=1.2),
    Stage("publish", python=3.0),
    Stage("endpoints", pair=7.1, python=0.3),
    Stage("capacity at gamma 0", pair=0.3, wait=2.5),
    Stage("the load in turns", python=1.1, wait=18.5),
)
