"""A part of packing's benchmark that only computes trains nothing."""

from __future__ import annotations

import pytest

from benchmarks.harness import Context, Skipped
from benchmarks.packing import contest, engine, vicuna
from benchmarks.packing.bench import PARTS


@pytest.mark.parametrize("name", ["study", "engine"])
def test_a_part_that_only_computes_names_the_part_that_trains(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    for module in (contest, vicuna):
        monkeypatch.setattr(module, "missing", lambda: "")
    for module in (contest, engine):
        monkeypatch.setattr(module, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(vicuna, "is_kept", lambda _home: False)
    monkeypatch.setattr(vicuna, "crossed", lambda *_: pytest.fail("trained"))
    with pytest.raises(Skipped, match="pliant bench packing --part forecasts"):
        PARTS[name].measure(Context(False, None))
