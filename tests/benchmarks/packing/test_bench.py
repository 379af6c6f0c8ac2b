"""Every part of packing's benchmark has its seconds, and one that only computes trains nothing."""

from __future__ import annotations

import pytest

from benchmarks.packing import contest, engine, vicuna
from benchmarks.packing.bench import PARTS, SLOW_SECONDS, Skipped


def test_every_part_has_its_seconds():
    assert list(SLOW_SECONDS) == list(PARTS)


@pytest.mark.parametrize("name", ["study", "engine"])
def test_a_part_that_only_computes_names_the_part_that_trains(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    for module in (contest, engine):
        monkeypatch.setattr(module, "missing", lambda: "")
        monkeypatch.setattr(module, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(vicuna, "is_kept", lambda _home, _way: False)
    monkeypatch.setattr(vicuna, "crossed", lambda *_: pytest.fail("trained"))
    with pytest.raises(Skipped, match="pliant bench packing --part forecasts"):
        PARTS[name](False, None)
