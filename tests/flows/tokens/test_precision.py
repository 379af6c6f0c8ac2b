"""The precision that tokens are served in: accuracy is measured in it, and float32 stays where another costs too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.flows.arithmetic import ArithmeticConfig
from pliant.flows.stage import StageResult
from pliant.flows.tokens import stages
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.stages import FOUNDATION, TokensData, run_tasks, served_precision
from pliant.registry.store import FolderStore
from pliant.tokens.artifact import Accuracies, Backbone, Task
from pliant.tokens.policy import knowledge
from pliant.training.data import digits
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.tokens.samples import tiny_backbone, tiny_task

AUTO = ArithmeticConfig()


def task(cost: float | None, name: str = "a") -> Task:
    """A task that half precision costs so much at one gamma, or (None) that was measured in float32 alone."""
    half = {} if cost is None else {"bfloat16": Accuracies({-5: 0.8 - cost, 0: 0.9}, {-5: 0.8, 0: 0.9})}
    return replace(tiny_task(name, "xy", "digest"), accuracy={-5: 0.8, 0: 0.9}, half=half)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(stages, "is_fast", lambda precision, device: True)
    monkeypatch.setattr("pliant.profiling.tokens.precision.slowdown", lambda *_: 0.5)


@pytest.mark.parametrize(
    ("tasks", "served", "reason"),
    [
        ([task(0.0), task(0.004, "b")], "bfloat16", "bfloat16 is served: it takes 0.50 times as long"),
        ([task(0.0), task(0.02, "b")], "float32", "float32 is served: bfloat16 gets 2.00% fewer answers right"),
        ([task(0.0), task(None, "b")], "float32", "were measured in no faster precision"),
    ],
)
def test_half_precision_is_served_where_it_costs_no_task_more_than_is_tolerated(fast, tasks, served, reason):
    """It was once a GPU's default, although it changes up to 5% of the labels of merged settings."""
    precision, why = served_precision(AUTO, None, tasks, "cpu")
    assert precision == served and reason in why


def test_a_device_without_instructions_and_a_configuration_of_float32_serve_float32(monkeypatch, fast):
    assert served_precision(ArithmeticConfig("float32"), None, [task(0.0)], "cpu")[0] == "float32"
    monkeypatch.setattr(stages, "is_fast", lambda precision, device: False)
    assert served_precision(AUTO, None, [task(0.0)], "cpu")[0] == "float32"


def test_what_was_faster_where_it_was_trained_is_not_served_where_it_is_slower(monkeypatch, fast):
    monkeypatch.setattr("pliant.profiling.tokens.precision.slowdown", lambda *_: 1.4)
    precision, why = served_precision(AUTO, None, [task(0.0)], "cpu")
    assert (precision, why) == ("float32", "float32 is served: bfloat16 takes 1.40 times as long")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train a task in the tiny setting, with half precision measured to take so many times as long as float32."""
    data, store = digits("digit"), FolderStore(tmp_path)
    store_digest = store.save("backbone", tiny_backbone())
    plain = TokensFlowConfig()
    config = replace(
        plain,
        measured=20,
        task=replace(plain.task, gammas=(2,), epochs=0.02, head_steps=2),
        latency=replace(plain.latency, gammas=(0, 2), batches=(1, 2)),
    )

    def train(ratio: float, tolerance: float = 1.0 - 1e-9):
        monkeypatch.setattr("pliant.profiling.tokens.precision.slowdown", lambda *_: ratio)
        chosen = replace(config, arithmetic=ArithmeticConfig("auto", tolerance))
        data_of = TokensData(data, (data,), (data,))
        return run_tasks(run, chosen, data_of)

    def run(stage, *args):
        if stage is FOUNDATION:
            return StageResult(Backbone, store, "backbone", store_digest)
        return stage.work(store, stage.task, *args)

    return train


@NEEDS_BFLOAT16
def test_accuracy_and_latency_are_measured_in_the_precision_that_is_served(trained):
    results = trained(0.6)
    task, profile = results.tasks[0].load(), results.profile.load()
    assert profile.precision == "bfloat16"
    assert task.half["bfloat16"].profiling.keys() == task.accuracy.keys() == {0, 2}
    bundle = results.bundle()
    assert bundle.tasks[0].accuracy == task.half["bfloat16"].profiling
    assert knowledge(profile, [task]).accuracy["digit"] == task.half["bfloat16"].profiling


@NEEDS_BFLOAT16
def test_where_half_precision_is_no_faster_it_is_not_measured_and_the_notes_say_so(trained):
    results = trained(0.97)
    assert results.tasks[0].load().half == {}
    assert results.tasks[0].notes["arithmetic"] == "float32 is served: bfloat16 takes 0.97 times as long"
    assert results.profile.load().precision == "float32"
