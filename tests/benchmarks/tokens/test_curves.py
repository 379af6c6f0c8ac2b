"""The curves tell what the champion's artifacts and versions hold, and nothing else."""

from __future__ import annotations

import json

import pytest

from benchmarks.tokens.curves import curves, figure
from flows.release import TRAINING
from flows.tokens.stages import Bundle
from pliant.tokens.artifact import GAMMAS
from registry.package import Published
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

SWEEP = {"rates": [0.01, 0.1], "accuracy": [0.4, 0.5], "plain": 0.3}
TASKS = (tiny_task("cats", ["tabby", "black"], "digest"), tiny_task("dogs", ["pug", "husky"], "digest", seed=1))
BUNDLE = Bundle(tiny_backbone(), TASKS, tiny_profile("digest", "cpu-x86_64-1t"))


def published(part: str, **noted: object) -> Published:
    tags = {"pliant.git_commit": "abc1234", TRAINING: json.dumps(noted)}
    return Published(f"pliant-tokens-{part}", 3, "sha256:x", "models:/x/3", tags)


@pytest.fixture
def found():
    return curves(BUNDLE, {"task-cats": published("task-cats", sweep=SWEEP, prompt_rate=0.1, seconds=9.0)})


def test_every_gamma_of_every_task_has_both_accuracies(found):
    for task in TASKS:
        rows = found["tasks"][task.name]["accuracy"]
        assert [row["gamma"] for row in rows] == list(GAMMAS)
        assert {row["gamma"]: row["profiling"] for row in rows} == task.accuracy
        assert {row["gamma"]: row["test"] for row in rows} == task.test_accuracy


def test_throughput_is_the_batch_over_its_median_seconds(found):
    for row in found["throughput"]:
        assert row["images_per_second"] * row["seconds"] == pytest.approx(row["batch"]) == 32


def test_how_a_task_was_trained_comes_with_its_version_where_that_is_known(found):
    cats, dogs = found["tasks"]["cats"], found["tasks"]["dogs"]
    assert (cats["version"], cats["commit"], cats["training"]["prompt_rate"]) == (3, "abc1234", 0.1)
    assert "training" not in dogs


def test_the_trials_are_drawn_only_where_there_were_any(found, tmp_path):
    assert [axes.get_title() for axes in figure(found).axes][2:] == ["Trials of the learning rate"]
    assert len(figure(curves(BUNDLE, {})).axes) == 2


def test_the_values_are_plain_json(found):
    assert json.loads(json.dumps(found)) == found
