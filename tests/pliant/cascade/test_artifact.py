"""What stored cascades and outputs are called, and what a part of them means if it is left out."""

from __future__ import annotations

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelProfile, Outputs, Pruning
from tests.fixtures.cascade.scenarios import table


def test_registries_hold_artifacts_of_these_kinds_and_schemas():
    assert [(kind.KIND, kind.SCHEMA) for kind in (Outputs, Cascade)] == [("cascade-outputs", 1), ("cascade-task", 1)]


def test_what_is_left_out_prunes_nothing_mixes_nothing_and_measures_nothing():
    assert Pruning() == Pruning("none", 1.0)
    assert Gate("always") == Gate("always", 0.0, 0.0, (), Pruning("none", 1.0), 1.0)
    assert Candidate("single", (0,), (), 0.9, 0.8, 0.1, (1.0,)).kept == 1.0
    assert LevelProfile("small", "sha256:small", 1.0, (), 0.9, 0.1, 0.05, table(0.1)).importance is None
