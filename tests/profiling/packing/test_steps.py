"""Profiling an engine's iterations: which states it measures, and that they are what they are said to be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory
from pliant.profiling.packing.steps import StepsConfig, profile
from tests.fixtures.packing.generators import tiny_generator

MEMORY = Memory(pages=60, page_tokens=8, host_pages=10, step_tokens=48, sequences=16)
QUICK = StepsConfig(sequences=(1, 4, 64), fills=(0.1, 0.8), prompts=(0.0, 0.5), warmup=1, repeats=3)


def test_every_state_that_fits_is_measured_once() -> None:
    measured, reports = profile(tiny_generator(), MEMORY, QUICK), []
    assert [(point.queries, point.sequences) for point in measured.points] == [
        (1, 1), (24, 2), (1, 1), (24, 2), (4, 4), (26, 5), (4, 4), (26, 5),
    ], "64 sequences are more than an iteration takes"  # fmt: skip
    assert all(point.seconds > 0 and point.cached >= point.queries for point in measured.points)
    assert measured.swap > 0
    profile(tiny_generator(), MEMORY, replace(QUICK, sequences=(1,)), progress=lambda *at: reports.append(at))
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_a_prompt_is_read_only_where_another_sequence_may_run() -> None:
    config = replace(QUICK, sequences=(4,), fills=(0.1,))
    measured = profile(tiny_generator(), replace(MEMORY, sequences=4), config)
    assert [(point.queries, point.sequences) for point in measured.points] == [(4, 4)]


def test_cached_tokens_are_those_of_the_middle_iteration() -> None:
    """Two sequences of 6 tokens (a tenth of half the cache): a warm-up, then three iterations that are timed."""
    memory = Memory(pages=16, page_tokens=8, step_tokens=32, sequences=8)
    ticks = itertools.count()
    config = StepsConfig(sequences=(2,), fills=(0.1,), prompts=(0.0,), warmup=1, repeats=3)
    (point,) = profile(tiny_generator(), memory, config, clock=lambda: float(next(ticks))).points
    assert (point.queries, point.sequences, point.cached, point.seconds) == (2, 2, 2 * 6 + 2 * 3, 1.0)


def test_a_memory_that_holds_none_of_it_is_refused() -> None:
    with pytest.raises(InputError, match="room for one of the sequences"):
        profile(tiny_generator(), replace(MEMORY, pages=1), QUICK)


@pytest.mark.parametrize(
    ("field", "value"), [("sequences", ()), ("sequences", (0,)), ("fills", (1.5,)), ("prompts", ()), ("repeats", 0)]
)
def test_an_impossible_setting_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        StepsConfig(**{field: value})
