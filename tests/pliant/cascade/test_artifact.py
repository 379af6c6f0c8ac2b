"""What stored cascades and outputs are called, and what a part of them means if it is left out."""

from __future__ import annotations

from pliant.cascade.artifact import Cascade, Outputs


def test_registries_hold_artifacts_of_these_kinds_and_schemas():
    assert [(kind.KIND, kind.SCHEMA) for kind in (Outputs, Cascade)] == [("cascade-outputs", 1), ("cascade-task", 1)]
