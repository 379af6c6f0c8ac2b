"""The simulated cascade gives the saved answers in the profiled seconds; the reference load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelOutputs, Pruning
from pliant.cascade.knowledge import Path, knowledge, placement
from pliant.cascade.simulated import SimulatedCascade, capacity, walks
from pliant.protocol import Launch
from tests.fixtures.cascade import scenarios
from tests.fixtures.cascade.loads import Load, ask, candidate, cascade, profile

MASS = Pruning("mass", 0.9)
OUTPUTS = scenarios.classification(3, texts=300, pruned=((0, 1, MASS),))
LEVELS = (profile("small", 0.7, 0.3, 0.4), profile("large", 0.9, 1.0))
CASCADE = cascade("news", LEVELS, candidate((0, 1), MASS), candidate((1,)))
KNOWN = knowledge([CASCADE])
WALKED = {"news": walks(CASCADE, OUTPUTS)}


def device(load: Load, jitter: float = 0.0, seed: int = 0) -> SimulatedCascade:
    return SimulatedCascade(KNOWN, WALKED, load.requests, load.rows, np.random.default_rng(seed), jitter)


def request_of(*rows: int, setting: int = 0) -> Load:
    return Load([ask(i, setting=setting) for i in range(len(rows))], list(rows))


def test_results_are_those_of_the_walk_step_by_step():
    small, large = WALKED["news"][0]
    simulated = device(request_of(*range(300)))
    first, second = (
        [simulated(Launch(0, 0, (request,), model))[1].results[0] for request in range(300)] for model in (0, 1)
    )
    assert [result.correct for result in first] == small.correct_R.tolist()
    assert [result.correct for result in second] == large.correct_R.tolist()
    assert [result.gain for result in first] == small.gain_R.tolist()
    assert [result.length for result in first] == OUTPUTS.pruned[0].length.tolist()
    assert {(result.gain, result.length) for result in second} == {(None, 0)}


def gated(threshold: float) -> Cascade:
    gate = Gate("tabi", threshold, 1e6, pruning=MASS)
    return replace(CASCADE, candidates=(Candidate("gated", (0, 1), (gate,), 0, 0, 0, (1.0, 1.0)),))


# The reference load


def test_capacity_counts_only_what_runs():
    never, always = gated(0.0), CASCADE
    alone = cascade("news", LEVELS[:1], candidate((0,)))
    rates = [capacity(knowledge([cascade]), {"news": walks(cascade, OUTPUTS)}) for cascade in (never, always)]
    assert rates[0] > 1.5 * rates[1]
    length = replace(
        OUTPUTS, levels=tuple(LevelOutputs(level.logits, level.length * 0 + 64) for level in OUTPUTS.levels)
    )
    only = capacity(knowledge([alone]), {"news": walks(alone, length)})
    assert only == pytest.approx(16 / SMALL_PLAIN.at(64, 16))


SMALL_PLAIN = LEVELS[0].latency


PRUNED = Pruning("mass", 0.9)
NEWS = cascade(
    "news",
    (profile("small", 0.8, 0.3, 0.4), profile("large", 0.9, 1.0, 1.1)),
    candidate((0, 1), PRUNED),
    candidate((1,)),
)
PAIRS = cascade(
    "pairs",
    (profile("tiny", 0.6, 0.2), profile("small", 0.7, 0.5, 0.6), profile("large", 0.8, 1.5)),
    candidate((0, 2)),
    candidate((0, 1, 2)),
)


def test_a_path_is_a_candidate_in_numbers_of_models_with_the_first_levels_accuracy():
    known = knowledge([NEWS, PAIRS])
    assert known.tasks == {
        "news": (Path((0, 1), 0.8, (1.0, 1.0), 1), Path((1,), 0.9, (1.0,))),
        "pairs": (Path((2, 4), 0.6, (1.0, 1.0)), Path((2, 3, 4), 0.6, (1.0, 1.0, 1.0))),
    }
    own = knowledge([NEWS, PAIRS], 2, own=True)
    assert own.tasks["news"][0].instead is None, "the first model has a device of its own"
    assert [model.workers for model in known.models] == [(0,)] * 5
    known.check(1)


@pytest.mark.parametrize(
    ("levels", "workers", "own", "where"),
    [
        (3, 2, False, [(0, 1)] * 3),
        (3, 3, True, [(0,), (1,), (2,)]),
        (3, 2, True, [(0,), (1,), (1,)]),
        (3, 1, True, [(0,)] * 3),
        (2, 4, True, [(0,), (1,)]),
    ],
)
def test_placement(levels, workers, own, where):
    assert placement(levels, workers, own) == where
