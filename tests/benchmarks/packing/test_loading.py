"""Loading is measured beside reading, on a small model here; without room it is skipped with the reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.harness import Context, Skipped
from benchmarks.packing import loading
from benchmarks.packing.bench import PARTS
from benchmarks.packing.loading import QUICK, Loading, LoadingConfig, Round, made_up, measure, missing
from pliant.packing.engine.model import load_generator

SMALL = LoadingConfig(vocabulary=64, width=32, inner=48, layers=2, heads=4, key_heads=2, rounds=3)


def test_a_model_that_is_made_up_has_as_many_parameters_as_is_said_and_runs():
    generator = made_up(SMALL)
    assert sum(array.size for array in generator.weights.values()) == SMALL.parameters
    assert sum(array.nbytes for array in generator.weights.values()) == SMALL.size
    model = load_generator(generator)
    assert generator.precision == "bfloat16" and model.dtype.itemsize == 2
    assert all(bool(weight.isfinite().all()) for weight in model.parameters())
    assert 0.95e9 < QUICK.parameters < 1.05e9


def test_every_round_reads_and_loads():
    seen: list[tuple[int, int]] = []
    result = measure(SMALL, lambda *at: seen.append(at))
    assert len(result.rounds) == 3 == len(result.table()) and seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(each.read > 0 and 0 < each.verified < each.load for each in result.rounds)


def test_the_target_is_the_ratio_of_medians_without_the_first_round():
    rounds = (Round(9.0, 1.0, 1.0), Round(1.0, 3.0, 1.0), Round(2.0, 5.0, 1.0), Round(4.0, 3.5, 1.0))
    (target,) = Loading(10**9, rounds).targets()
    assert (target.measured, target.limit, target.met) == (3.5 / 2.0, 2.0, True)
    assert target.name.startswith("loading 1 billion parameters")


@pytest.mark.parametrize(
    ("disk", "memory", "reason"),
    [(10**9, 10**12, r"needs 4\.0 GB in .*, where 1\.0 GB are free"), (10**12, 10**9, r"needs 7\.9 GB of memory")],
)
def test_without_room_the_part_is_skipped(monkeypatch, disk, memory, reason):
    monkeypatch.setattr(loading.shutil, "disk_usage", lambda _path: SimpleNamespace(free=disk))
    monkeypatch.setattr(loading, "_free_memory", lambda: memory)
    with pytest.raises(Skipped, match=reason):
        PARTS["loading"].measure(Context(False, None))
    assert missing(SMALL) == ""
