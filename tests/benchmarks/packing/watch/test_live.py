"""What is timed of packing's counting is what a service counts, and what is missing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness import Context, Skipped
from benchmarks.packing.watch import live
from benchmarks.packing.watch.live import NAME
from serving.watch.seen import Seen


def test_an_output_is_counted_in_all_streams() -> None:
    seen = Seen()
    count = live._counting(seen, 100)
    for number in range(50):
        count(number)
    counts = seen.take()[-1]
    assert {name: sum(each) for name, each in counts.items()} == {
        f"tokens of prompts of {NAME}": 50,
        f"tokens of outputs of {NAME}": 50,
        f"forecast of {NAME}": 50,
    }
    assert all(sum(value > 0 for value in each) > 1 for each in counts.values()), "not all in the same bin"


def test_without_the_model_the_part_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(live, "STORIES", tmp_path / "models" / "none")

    def no_stage(name: str):
        raise AssertionError(f"{name} began")

    with pytest.raises(Skipped, match="needs none"):
        live.cost(Context(False, no_stage))
