"""The simulated cascade gives the saved answers in the profiled seconds; the reference load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelOutputs, Pruning
from pliant.cascade.evaluate import EvaluationData, evaluate
from pliant.cascade.knowledge import knowledge
from pliant.cascade.scheduler import CascadeScheduler, Options
from pliant.cascade.simulated import SimulatedCascade, capacity, walks
from pliant.errors import InputError
from pliant.protocol import Launch
from pliant.simulator import simulate
from tests.fixtures.cascade import scenarios
from tests.fixtures.cascade.loads import Load, ask, candidate, cascade, fared, profile

MASS = Pruning("mass", 0.9)
OUTPUTS = scenarios.classification(3, texts=300, pruned=((0, 1, MASS),))
LEVELS = (profile("small", 0.7, 0.3, 0.4), profile("large", 0.9, 1.0))
CASCADE = cascade("news", LEVELS, candidate((0, 1), MASS), candidate((1,)))
KNOWN = knowledge([CASCADE])
WALKED = {"news": walks(CASCADE, OUTPUTS)}
SMALL, LARGE = (model.latency for model in KNOWN.models)
LENGTHS = OUTPUTS.levels[0].length


def device(load: Load, jitter: float = 0.0, seed: int = 0) -> SimulatedCascade:
    return SimulatedCascade(KNOWN, WALKED, load.requests, load.rows, np.random.default_rng(seed), jitter)


def request_of(*rows: int, setting: int = 0) -> Load:
    return Load([ask(i, setting=setting) for i in range(len(rows))], list(rows))


def test_a_launch_lasts_as_long_as_its_longest_text_takes():
    seconds, end = device(request_of(4, 5, 6))(Launch(3, 0, (0, 1, 2), 0))
    assert seconds == end.seconds == pytest.approx(SMALL.between(int(LENGTHS[4:7].max()), 3))
    assert (end.launch, [result.request for result in end.results]) == (3, [0, 1, 2])


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


def test_where_there_is_time_for_all_the_simulation_is_as_accurate_as_the_evaluation():
    """Both walk the same steps, one through a scheduler and the other at once."""
    cascade = gated(0.5)
    known, walked = knowledge([cascade]), {"news": walks(cascade, OUTPUTS)}
    load = Load([ask(i, at=i / 10, within=5.0) for i in range(300)], list(range(300)))
    simulated = SimulatedCascade(known, walked, load.requests, load.rows, np.random.default_rng(0))
    journal = simulate(CascadeScheduler(known, 1, Options(margin=0.0)), load.requests, simulated)
    evaluation = evaluate(cascade.candidates[0], EvaluationData(OUTPUTS, cascade.levels))
    assert fared(journal).utility == pytest.approx(evaluation.accuracy)
    runs = [a for entry in journal for a in entry.actions if isinstance(a, Launch)]
    assert sum(len(launch.requests) for launch in runs) == evaluation.steps_R.sum()
    assert set(evaluation.steps_R) == {1, 2}


def gated(threshold: float) -> Cascade:
    gate = Gate("tabi", threshold, 1e6, pruning=MASS)
    return replace(CASCADE, candidates=(Candidate("gated", (0, 1), (gate,), 0, 0, 0, (1.0, 1.0)),))


def test_a_pruning_that_was_not_run_on_the_texts_is_refused():
    with pytest.raises(InputError, match="pruning"):
        walks(CASCADE, replace(OUTPUTS, pruned=()))


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


def test_capacity_of_two_tasks_is_that_of_their_mean_text():
    other = replace(CASCADE, task="mail", levels=(LEVELS[0], profile("large", 0.9, 3.0)))
    rates = [capacity(knowledge([c]), {c.task: walks(c, OUTPUTS)}) for c in (CASCADE, other)]
    both = capacity(knowledge([CASCADE, other]), {c.task: walks(c, OUTPUTS) for c in (CASCADE, other)})
    assert both == pytest.approx(2 / (1 / rates[0] + 1 / rates[1]))
