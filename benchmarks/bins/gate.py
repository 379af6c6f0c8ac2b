"""How often the gate refuses a retrained encoder for its speed: on this machine, with real profiles and launches.

The champion is profiled on the machine as it is, each challenger beside processes that keep all cores busy; then both are
measured in turns, the gate's way, beside bursts of further work. Weights are random: how long a launch takes does not
depend on them. The slower one has a layer more than the champion's five, so it takes at most 1.2 times as long.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pliant.benchmarks.bins.acceptance import random_encoder
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.flows.bins import config
from pliant.flows.bins.beside import Side, beside
from pliant.flows.bins.gate import Candidate, judge
from pliant.flows.bins.measure import finish, measure
from pliant.progress import silent
from pliant.workload import ReferenceConfig

SIZES = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 1000}
LAYERS, LONGEST, RUNS = 5, 128, 20
SETTINGS = config.read(
    overrides={
        "engine": {"engine": "eager"},
        "latency": {"lengths": [32, 64], "batches": [1, 4], "repeats": 3},
        "edges": {"most": 3, "step": 32, "batches": [1, 4]},
        "device": "cpu",
    }
)
BUDGET = 1.0  # seconds of the processor
LOAD = ReferenceConfig(quiet=(0.3,), loud=(0.7,), seconds=1.0)
SPIN = """
import random, time
while True:
    until = time.monotonic() + random.uniform(0.02, 0.3)
    while time.monotonic() < until: pass
    time.sleep(random.uniform(0, 0.5) * {bursts})
"""


@contextmanager
def busy(bursts: bool) -> Iterator[None]:
    """Have one process a core at work: always, or in bursts of up to 0.3 s."""
    code = SPIN.format(bursts=int(bursts))
    workers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def profiled(layers: int, seed: int) -> Side:
    """Return an encoder with the bins that the flow's stages choose for it, in plain torch: nothing is compiled."""
    encoder = random_encoder({**SIZES, "num_hidden_layers": layers}, LONGEST, seed)
    lengths_N = np.bincount(np.random.default_rng(0).integers(4, LONGEST, 1000), minlength=LONGEST + 1)
    measured = measure(SETTINGS, encoder, Path(), silent)
    return encoder, finish(SETTINGS, encoder, f"{seed:016}", 0.15, lengths_N, measured, Path(), silent)[0]


def gate(context: Context) -> Measured:
    """Return the targets, and of each challenger whether it is the slower one, passed, and why."""
    rows = []
    with context.stage("gate") as progress:
        champion = profiled(LAYERS, 0)
        for number in range(2 * RUNS):
            slower = number % 2 == 1
            with busy(bursts=False):
                challenger = profiled(LAYERS + slower, number + 1)
            with busy(bursts=True):
                now = beside(SETTINGS, (champion, challenger), None, Path(), silent, BUDGET)
            sides = Candidate(champion[1]), Candidate(challenger[1])
            verdict = judge(*sides, config.GateConfig(seeds=1), LOAD, silent, now)
            rows.append((slower, verdict.passed, verdict.reason))
            progress(number + 1, 2 * RUNS)
    equals, planted = (float(sum(not passed for kind, passed, _ in rows if kind is slower)) for slower in (False, True))
    return [
        Target("same sizes, profiled beside a busy machine: refused of 20", equals, "<=", 1.0),
        Target("a layer more than five: refused of 20", planted, ">=", 20.0),
    ], {"rows": rows}
