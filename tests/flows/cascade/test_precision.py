"""A cascade's precision is chosen by what its levels take and get right in each."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from flows.cascade.precision import cost, in_precision, slowdown

from flows.cascade import flow as cascade_flow
from flows.cascade import reprofile
from flows.cascade.champions import Record, Saved
from flows.cascade.config import CascadeFlowConfig, read
from flows.cascade.stages import Latencies, planned
from pliant.cascade.artifact import LevelOutputs, Outputs
from pliant.errors import ArtifactError, InputError, RegistryError
from pliant.progress import silent
from registry.store import FolderStore
from tests.fixtures.cascade.tiny import some_outputs, table

FULL = some_outputs()
HALF = replace(FULL, precision="bfloat16")


def latencies(factor: float, precision: str = "float32") -> Latencies:
    return Latencies("cpu", (table(factor), table(10 * factor)), (table(factor), None), precision)


def worse(outputs: Outputs, texts: int, level: int = 1) -> Outputs:
    """The same with so many right answers of a level made wrong."""
    logits_RK = outputs.levels[level].logits.copy()
    right = np.flatnonzero(logits_RK.argmax(1) == outputs.labels)[:texts]
    logits_RK[right] = np.roll(logits_RK[right], 1, 1)
    changed = [*outputs.levels]
    changed[level] = LevelOutputs(logits_RK, outputs.levels[level].length)
    return replace(outputs, levels=tuple(changed))


def test_outputs_and_latencies_are_measured_in_the_same_precision():
    config = in_precision(CascadeFlowConfig(), "bfloat16")
    assert (config.outputs.execution.precision, config.latency.execution.precision) == ("bfloat16", "bfloat16")
    assert in_precision(config, "float32") == CascadeFlowConfig()


def test_a_precision_of_one_stage_alone_is_refused_as_it_would_not_be_served():
    for part in ("outputs", "latency"):
        with pytest.raises(InputError, match=f"{part}.execution.precision is bfloat16, but must be left out"):
            read(None, {part: {"execution": {"precision": "bfloat16"}}})


def test_the_slowdown_is_the_mean_over_all_levels_and_sizes():
    assert slowdown(latencies(0.5), latencies(1.0)) == pytest.approx(0.5)
    uneven = replace(latencies(1.0), plain=(table(0.25), table(10)))
    assert slowdown(uneven, latencies(1.0)) == pytest.approx(0.5)


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


class Stages:
    """Stands for the flow's stages: results by precision, and which were asked for."""

    def __init__(self, monkeypatch, store: FolderStore, ratio: float, half: Outputs) -> None:
        self.asked: list[str] = []
        self._store = store
        self._values = {
            "latencies-float32": latencies(1.0),
            "latencies-bfloat16": latencies(ratio, "bfloat16"),
            "outputs-float32": FULL,
            "outputs-bfloat16": half,
        }
        monkeypatch.setattr(cascade_flow, "_latencies", lambda config, *_: self._stage("latencies", config))
        monkeypatch.setattr(cascade_flow, "_outputs", lambda config, *_: self._stage("outputs", config))
        monkeypatch.setattr(cascade_flow, "half_of", lambda config, device: "bfloat16")

    def _stage(self, name: str, config: CascadeFlowConfig):
        key = f"{name}-{config.latency.execution.precision}"
        self.asked.append(key)
        return {"key": key, "digest": self._store.save(key, self._values[key])}


@pytest.mark.parametrize(
    ("ratio", "lost", "served", "reason"),
    [
        (0.5, 1, "bfloat16", "bfloat16 is served: it takes 0.50 times as long as float32 and gets 0.25% fewer right"),
        (0.5, 8, "float32", "float32 is served: bfloat16 gets 2.00% fewer answers right, and 0.50% are tolerated"),
        (1.2, 0, "float32", "float32 is served: bfloat16 takes 1.20 times as long"),
    ],
)
def test_the_flow_falls_back_to_float32_where_half_precision_costs_too_much_or_is_no_faster(
    monkeypatch, tmp_path, ratio, lost, served, reason
):
    store = FolderStore(tmp_path)
    stages = Stages(monkeypatch, store, ratio, worse(HALF, lost))
    config, told = cascade_flow._in_best_precision(CascadeFlowConfig(), None, {}, store)
    assert (config.latency.execution.precision, told) == (served, reason)
    assert any("outputs" in asked for asked in stages.asked) is (ratio < 1), "what is not faster is not tested"


def test_without_half_precision_nothing_is_measured_twice(monkeypatch):
    monkeypatch.setattr(cascade_flow, "half_of", lambda config, device: None)
    config = CascadeFlowConfig()
    assert cascade_flow._in_best_precision(config, None, {}, None) == (config, "")


def test_a_plan_holds_the_precision_of_its_outputs_and_none_of_another():
    config = CascadeFlowConfig()
    assert planned(config, HALF, HALF, latencies(1.0, "bfloat16"), False).precision == "bfloat16"
    with pytest.raises(ArtifactError, match="measured in bfloat16, bfloat16 and float32: one is needed"):
        planned(config, HALF, HALF, latencies(1.0), False)


SAVED = {name: Saved(name, "") for name in ("half", "half test", "full", "full test")}
RECORD = Record(None, None, 1, SAVED["half"], SAVED["half test"], (SAVED["full"], SAVED["full test"]))
CHAMPION = SimpleNamespace(record=RECORD, cascade=SimpleNamespace(task="things"))


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


def test_a_device_without_any_precision_that_was_tested_is_told_to_train(monkeypatch):
    monkeypatch.setattr(reprofile, "_saved", lambda store, champion, saved: HALF)
    monkeypatch.setattr(reprofile, "is_fast", lambda precision, device: False)
    with pytest.raises(RegistryError, match="things was only tested in bfloat16, for which this device has no instr"):
        reprofile._saved_pairs(None, CHAMPION, "cpu")
