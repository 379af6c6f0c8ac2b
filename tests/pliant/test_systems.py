"""The list of systems, and a scheduler made from stored artifacts."""

from __future__ import annotations

import pytest

from pliant import systems
from pliant.errors import InputError
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from tests.fixtures.tokens.samples import tiny_profile, tiny_task


def test_an_unknown_system_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="SYSTEM is chess, but must be one of tokens, bins, cascade, packing"):
        systems.system("chess")


def test_a_scheduler_knows_the_gammas_that_were_profiled_and_that_every_task_was_measured_at():
    tasks = [tiny_task("a", "xy", "d"), tiny_task("b", "xy", "d", gammas=(2, 4))]
    known = tokens_knowledge(tiny_profile("d", "cpu"), tasks)
    assert known.latency.settings == (-20, -15, -10, -5, 0, 2, 4)
    assert {task: dict(shares) for task, shares in known.accuracy.items()} == {t.name: dict(t.accuracy) for t in tasks}
    assert known.rule == tiny_profile("d", "cpu").rule
    assert dict(known.loading) == {}
