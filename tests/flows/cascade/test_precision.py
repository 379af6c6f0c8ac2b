"""A cascade's precision is chosen by what its levels take and get right in each."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.cascade.artifact import BAG, LevelOutputs, Outputs
from pliant.cascade.plan import Measured
from pliant.errors import InputError
from pliant.flows.cascade import reprofile
from pliant.flows.cascade import stages as cascade_stages
from pliant.flows.cascade.champions import Record, Saved
from pliant.flows.cascade.config import CascadeFlowConfig, read
from pliant.flows.cascade.stages import Latencies, TaskData, cost, run_task, slowdown
from pliant.progress import silent
from tests.fixtures.cascade.tiny import setting, some_outputs, table, write_texts

FULL = some_outputs()
HALF = replace(FULL, precision="bfloat16")


def latencies(factor: float, precision: str = "float32") -> Latencies:
    levels = Measured(table(factor), table(factor)), Measured(table(10 * factor))
    return Latencies("cpu", levels, precision)


def worse(outputs: Outputs, texts: int, level: int = 1) -> Outputs:
    """The same with so many right answers of a level made wrong."""
    logits_RK = outputs.levels[level].logits.copy()
    right = np.flatnonzero(logits_RK.argmax(1) == outputs.labels)[:texts]
    logits_RK[right] = np.roll(logits_RK[right], 1, 1)
    changed = [*outputs.levels]
    changed[level] = LevelOutputs(logits_RK, outputs.levels[level].length)
    return replace(outputs, levels=tuple(changed))


def test_a_precision_of_one_stage_alone_is_refused_as_it_would_not_be_served():
    for part in ("outputs", "latency"):
        with pytest.raises(InputError, match=f"{part}.execution.precision is bfloat16, but must be left out"):
            read(None, {part: {"execution": {"precision": "bfloat16"}}})


def test_the_slowdown_is_the_mean_over_all_levels_and_sizes():
    assert slowdown(latencies(0.5), latencies(1.0)) == pytest.approx(0.5)
    uneven = replace(latencies(1.0), levels=(Measured(table(0.25)), Measured(table(10))))
    assert slowdown(uneven, latencies(1.0)) == pytest.approx(0.5)


def test_a_bag_is_in_no_precision_and_does_not_count_for_the_slowdown():
    half, full = (
        replace(latencies(factor), levels=(Measured(table(bag), kind=BAG), *latencies(factor).levels))
        for factor, bag in ((0.5, 7.0), (1.0, 1.0))
    )
    assert slowdown(half, full) == pytest.approx(0.5)


def test_the_cost_is_that_of_the_level_that_loses_most():
    assert cost(HALF, FULL) == 0
    assert cost(worse(HALF, 8), FULL) == pytest.approx(8 / 400)
    assert cost(worse(worse(HALF, 8), 20, level=0), FULL) == pytest.approx(20 / 400)


def test_a_regression_loses_what_leaves_the_tolerance():
    rng = np.random.default_rng(0)
    value_R = rng.normal(size=100)
    said = LevelOutputs((value_R + rng.uniform(-0.1, 0.1, 100))[:, None].astype(np.float32), np.ones(100, np.int32))
    full = replace(FULL, classes=(), labels=value_R, levels=(said,))
    logits_RK = said.logits.copy()
    logits_RK[:10] = value_R[:10, None] + 5
    right = np.abs(said.logits[:10, 0] - value_R[:10]) <= np.sqrt(np.mean((said.logits[:, 0] - value_R) ** 2))
    half = replace(full, levels=(LevelOutputs(logits_RK, said.length),))
    assert cost(half, full) == pytest.approx(right.sum() / 100)


@pytest.mark.parametrize(
    ("ratio", "lost", "served", "reason"),
    [
        (0.5, 1, "bfloat16", "bfloat16 is served: it takes 0.50 times as long as float32 and gets 0.25% fewer right"),
        (0.5, 8, "float32", "float32 is served: bfloat16 gets 2.00% fewer answers right, and 0.50% are tolerated"),
        (1.2, 0, "float32", "float32 is served: bfloat16 takes 1.20 times as long"),
        (None, 0, "float32", ""),
    ],
)
def test_the_flow_falls_back_to_float32_where_half_precision_costs_too_much_or_is_no_faster(
    monkeypatch, tmp_path, ratio, lost, served, reason
):
    """`ratio` None: the device has no half precision."""
    write_texts(tmp_path)
    config = read(overrides=setting(tmp_path, arithmetic={"precision": "auto"}))
    ran: list[tuple[str, str]] = []

    def run(stage, *args):
        precision = args[0].latency.execution.precision if hasattr(args[0], "latency") else "float32"
        ran.append((stage.task, precision))
        half = precision == "bfloat16"
        artifact = {
            "latencies": latencies(ratio or 1.0, precision) if half else latencies(1.0),
            "outputs": worse(HALF, lost) if half else FULL,
            "lesson": SimpleNamespace(layers=(1,)),
        }.get(stage.task)
        return SimpleNamespace(load=lambda: artifact)

    monkeypatch.setattr(cascade_stages, "half_of", lambda _config, _device: "bfloat16" if ratio else None)
    [data] = cascade_stages.load_data(config)
    results = run_task(run, config, TaskData(config.levels, data, ""))
    assert results.arithmetic == reason
    assert ("plan", served) in ran
    assert (("outputs", "bfloat16") in ran) is (ratio == 0.5), "what is not faster is not tested"


SAVED = {name: Saved(name, "") for name in ("half", "half test", "full", "full test")}
RECORD = Record(None, None, 1, SAVED["half"], SAVED["half test"], (SAVED["full"], SAVED["full test"]))
CHAMPION = SimpleNamespace(record=lambda _: RECORD, artifact=SimpleNamespace(task="things"))


@pytest.mark.parametrize(
    ("fast", "ratio", "served"),
    [
        (("float32", "bfloat16"), 0.5, "bfloat16"),
        (("float32", "bfloat16"), 1.1, "float32"),
        (("float32",), 0.5, "float32"),
    ],
)
def test_a_profile_takes_the_fastest_precision_that_was_tested_and_that_the_device_has(
    monkeypatch, fast, ratio, served
):
    def measured(config, classifiers, progress):
        precision = config.latency.execution.precision
        return latencies(ratio if precision == "bfloat16" else 1.0, precision)

    monkeypatch.setattr(reprofile, "_saved", lambda store, champion, saved: HALF if "half" in saved.key else FULL)
    monkeypatch.setattr(reprofile, "is_fast", lambda precision, device: precision in fast)
    monkeypatch.setattr(reprofile, "measure", measured)
    pairs = reprofile._saved_pairs(None, CHAMPION, "cpu")
    pair, taken = reprofile._fastest(CascadeFlowConfig(), [], pairs, silent)
    assert (taken.precision, pairs[pair][0].precision) == (served, served)
    record = reprofile._of_pair(RECORD, pair)
    assert {record.outputs, record.test, *record.other} == set(SAVED.values())
    assert (record.outputs, record.test) == pair
