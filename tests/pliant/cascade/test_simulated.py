"""What a scheduler knows of stored cascades, and simulated devices that give the saved answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelOutputs, Pruning
from pliant.cascade.knowledge import Path, knowledge, placement
from pliant.cascade.simulated import capacity, walks
from tests.fixtures.cascade import scenarios
from tests.fixtures.cascade.loads import candidate, cascade, profile

MEAN = Pruning("mean", 0.6)
OUTPUTS = scenarios.classification(3, texts=300, pruned=((0, 1, MEAN),))
LEVELS = (profile("small", 0.7, 0.3, 0.4), profile("large", 0.9, 1.0))
CASCADE = cascade("news", LEVELS, candidate((0, 1), MEAN), candidate((1,)))


def gated(threshold: float) -> Cascade:
    gate = Gate("tabi", threshold, 1e6, pruning=MEAN)
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


PRUNED = Pruning("mean", 0.6)
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
    task = cascade("news", tuple(profile(f"level {number}", 0.5, 1.0) for number in range(levels)), candidate((0,)))
    assert placement(task, workers, own) == where
