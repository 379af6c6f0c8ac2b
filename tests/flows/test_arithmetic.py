"""Half precision is served where it is faster and accuracy allows it, and float32 elsewhere, with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.flows import arithmetic
from pliant.flows.arithmetic import ArithmeticConfig, chosen, half_of
from pliant.flows.stage import StageResult
from pliant.flows.tokens import stages
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.stages import FOUNDATION, TokensData, run_tasks, served_precision
from pliant.registry.store import FolderStore
from pliant.tokens.artifact import Accuracies, Backbone, Task
from pliant.tokens.scheduler import knowledge
from pliant.training.data import digits
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.tokens.samples import tiny_backbone, tiny_task

AUTO = ArithmeticConfig()


@pytest.mark.parametrize("half", ["bfloat16", None])
def test_auto_measures_what_the_device_has_and_float32_nothing(monkeypatch, half):
    monkeypatch.setattr(arithmetic, "half_precision", lambda device: half)
    assert half_of(ArithmeticConfig(), "cpu") == half
    assert half_of(ArithmeticConfig("float32"), "cpu") is None


def test_a_named_precision_is_measured_where_the_device_has_it_and_else_refused(monkeypatch):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    assert half_of(ArithmeticConfig("bfloat16"), "cpu") == "bfloat16"
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match=r"arithmetic.precision is bfloat16, but must be float32 here"):
        half_of(ArithmeticConfig("bfloat16"), "cpu")
    with pytest.raises(
        InputError, match=r"arithmetic.precision is float16, but must be float32 here: float16 is for GPUs"
    ):
        half_of(ArithmeticConfig("float16"), "cpu")


@pytest.mark.parametrize(
    ("precision", "ratio", "cost", "sentence"),
    [
        ("auto", 0.94, 0.01, "bfloat16 is served: it takes 0.94 times as long as float32 and gets 1.00% fewer right"),
        ("auto", 0.95, None, "float32 is served: bfloat16 takes 0.95 times as long"),
        (
            "bfloat16",
            3.0,
            -0.02,
            "bfloat16 is served: it takes 3.00 times as long as float32 and gets 0.00% fewer right",
        ),
        ("auto", 0.5, 0.011, "float32 is served: bfloat16 gets 1.10% fewer answers right, and 1.00% are tolerated"),
        ("bfloat16", 0.5, 0.011, "float32 is served: bfloat16 gets 1.10% fewer answers right, and 1.00% are tolerated"),
    ],
)
def test_half_precision_is_served_where_it_is_clearly_faster_or_named_and_costs_no_more_than_is_tolerated(
    precision, ratio, cost, sentence
):
    """`cost` None: what is not faster is not tested."""

    def asked() -> float:
        assert cost is not None
        return cost

    served, reason = chosen(ArithmeticConfig(precision, tolerance=0.01), "bfloat16", ratio, asked)
    assert (served, reason) == (sentence.startswith("bfloat16"), sentence)


def task(cost: float | None, name: str = "a") -> Task:
    """A task that half precision costs so much at one gamma, or (None) that was measured in float32 alone."""
    half = {} if cost is None else {"bfloat16": Accuracies({-5: 0.8 - cost, 0: 0.9}, {-5: 0.8, 0: 0.9})}
    return replace(tiny_task(name, "xy", "digest"), accuracy={-5: 0.8, 0: 0.9}, half=half)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(stages, "is_fast", lambda precision, device: True)
    monkeypatch.setattr("pliant.profiling.tokens.latency.slowdown", lambda *_: 0.5)


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
        monkeypatch.setattr("pliant.profiling.tokens.latency.slowdown", lambda *_: ratio)
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
    assert task.half["bfloat16"].profiling.keys() == task.accuracy.keys() >= {0, *task.points}
    bundle = results.bundle()
    assert bundle.tasks[0].accuracy == task.half["bfloat16"].profiling
    assert knowledge(profile, [task]).accuracy["digit"] == task.half["bfloat16"].profiling


@NEEDS_BFLOAT16
def test_where_half_precision_is_no_faster_it_is_not_measured_and_the_notes_say_so(trained):
    results = trained(0.97)
    assert results.tasks[0].load().half == {}
    assert results.tasks[0].notes["arithmetic"] == "float32 is served: bfloat16 takes 0.97 times as long"
    assert results.profile.load().precision == "float32"
