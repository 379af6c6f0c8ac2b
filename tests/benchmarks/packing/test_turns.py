"""Engines in turns: the same texts as alone, on clocks that count their own iterations, and ratios taken from them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pliant.benchmarks.packing.transformers_engine import TransformersEngine
from pliant.benchmarks.packing.turns import Make, in_turns
from pliant.errors import WorkerError
from pliant.packing.engine.runtime import Engine
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.policy import Rules
from tests.fixtures.packing.generators import CONTEXT, SCARCE, prompts, submission, tiny_generator

LATE = 1e6  # seconds: nobody waits so long


def makes(journal: object = None) -> list[Make]:
    rules = Rules("paged", CONTEXT)
    return [
        lambda deliver, clock: Engine(
            tiny_generator(), SCARCE, rules, deliver, sampling=False, clock=clock, journal=journal
        ),
        lambda deliver, _clock: TransformersEngine(tiny_generator(), SCARCE, deliver),
    ]


def submitted() -> list[Submission]:
    """The last comes long after the others have ended."""
    made = [submission(id, ids, force=25 + id) for id, ids in enumerate(prompts(8))]
    late = replace(made[-1].prompt, arrival=LATE)
    return [*made[:-1], replace(made[-1], prompt=late)]


def test_everybody_makes_the_same_texts_on_a_clock_of_its_own() -> None:
    began = time.monotonic()
    ran = in_turns(makes(), submitted())
    wall = time.monotonic() - began
    assert ran[0].texts == ran[1].texts
    assert [len(text) for text in ran[0].texts] == [25 + id for id in range(8)]
    assert all(one.status.preemptions > 0 for one in ran)
    assert all(LATE < one.seconds < LATE + wall for one in ran), "the clock goes on to the next arrival"
    assert sum(max(one.taken) for one in ran) < wall, "a clock stands while others run"


def test_an_engine_that_dies_is_told() -> None:
    def broken(*entry: object) -> None:
        raise RuntimeError("no device")

    with pytest.raises(WorkerError, match="no device"):
        in_turns(makes(broken)[:1], submitted())
