"""Engines in turns: the same texts as alone, on clocks that count their own iterations, and ratios taken from them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from benchmarks.packing.engine import FIFO, OFFLINE, ONLINE, OURS, Contender, EngineContest, Row
from benchmarks.packing.transformers_engine import TransformersEngine
from benchmarks.packing.turns import Make, TurnOutcome, in_turns
from pliant.errors import WorkerError
from pliant.packing.engine.runtime import Engine
from pliant.packing.engine.submission import Status, Submission
from pliant.packing.scheduling.policy import Rules
from tests.fixtures.packing.generators import CONTEXT, HOSTED, SCARCE, prompts, submission, tiny_generator

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


def row(load: str, name: str, rules: Rules | None, seconds: float, margin: float = 0.0, text: int = 1) -> Row:
    status = Status(False, "", 0, 0, 9, 0, 0, 10, 20, 3, 0, 20, 1.0, 0.1)
    ran = TurnOutcome(seconds, (seconds, seconds / 2), ((text,) * 10, (2,) * 10), status)
    return Row(load, Contender(name, rules, HOSTED, margin), ran)


def rows(text: int = 1) -> tuple[Row, ...]:
    paged, ours = Rules("paged", CONTEXT), Rules("default", CONTEXT)
    return tuple(
        one
        for load in (OFFLINE, ONLINE)
        for one in (
            row(load, FIFO, None, 4.0),
            row(load, FIFO, None, 3.0, 0.3),
            row(load, "paged", paged, 5.0),
            row(load, OURS, ours, 1.4, text=text),
        )
    )


def test_we_are_compared_with_the_rivals_best_setting() -> None:
    targets = {
        bar.name.partition(":")[0] + bar.sense: bar for bar in EngineContest(rows(), 1.0, ((1,) * 10,)).targets()
    }
    assert targets["all at once>="].measured == pytest.approx(3 / 1.4)
    assert targets["Poisson>="].measured == pytest.approx(3 / 1.4)
    assert targets["Poisson<="].measured == pytest.approx(1.4 / 3)
    assert all(bar.met for bar in targets.values())


def test_texts_that_differ_fail_the_bar() -> None:
    assert EngineContest(rows(), 1.0, ()).differing() == 0
    assert EngineContest(rows(text=7), 1.0, ()).differing() == 2
    assert EngineContest(rows(), 1.0, ((3,) * 10,)).differing() == 1
