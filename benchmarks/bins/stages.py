"""What the demo of bins does and what each stage costs (see benchmarks/demo/estimate.py). Imports nothing heavy.

Stages of less than a second count to those after them.
"""

from __future__ import annotations

from benchmarks.demo.estimate import Stage
from benchmarks.demo.stages import TEXTS

FLOW = "train, compile, profile, choose bins, judge, publish"
LOAD = "the same texts of all lengths, with bins and without"
PAGE = "/docs"
STAGES = (
    TEXTS,
    Stage("package: encoder", tensor=4.8, python=3.6),
    Stage("package: lengths", tensor=0.7, python=0.3),
    Stage("package: compile, latency profile", tensor=0.8, python=7.6),
    Stage("package: bins", tensor=0.2, python=1.9),
    Stage("package: gate", python=1.4),
    Stage("publish", tensor=0.1, python=0.9),
    Stage("two bins endpoints, up", pair=7.6, python=2.0),
    Stage("what the machine bears", wait=3.0),
    Stage("texts of all lengths in turns", pair=0.3, python=2.6, wait=15.0),
)
