"""The real cascade flow with labelled answers: what is planned anew, what is trained, and who moves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.flows import settings
from pliant.flows.cascade.champions import fetch_classifiers, load_champions, outputs_on_test
from pliant.flows.release import open_registry
from pliant.registry.store import FolderStore
from tests.fixtures.cascade.lessons import changed_rows, write_outcomes
from tests.fixtures.cascade.tiny import setting
from tests.fixtures.runs import Runs, versions

TASK = "pliant-cascade-task-things"
ALWAYS = ["things: gate", "publish"]
POOLED = [
    f"things: {what}, {split}"
    for split in ("profiling", "test")
    for what in ("outputs of labelled texts", "old and labelled texts")
]

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", ["cascade"], indirect=True)]


@pytest.fixture(scope="module")
def runs(world) -> Runs:
    return world.runs


@pytest.fixture(scope="module")
def outcomes(world) -> dict[str, str]:
    return {"outcomes": str(write_outcomes(world.folder / "outcomes", changed_rows(400)))}


@pytest.fixture(scope="module")
def taught(runs, outcomes) -> tuple[dict[str, Any], list[str]]:
    """The run that learns from labels for the first time."""
    runs.unchanged()
    return runs(feedback=outcomes)


def champion():
    return load_champions(open_registry(settings.read(), "cascade"))["things"]


def test_labels_of_strangers_of_one_tenant_and_of_nobody_change_nothing(runs, place):
    rows = changed_rows(400)
    runs.unchanged()
    for name, folder in (
        ("none", place / "none"),
        ("anonymous", write_outcomes(place / "anonymous", rows, ("",), "")),
        ("single", write_outcomes(place / "single", rows, ("evil",))),
        ("texts", write_outcomes(place / "texts", rows, keep=False)),
    ):
        before = versions("cascade")
        released, stages = runs(feedback={"outcomes": str(folder)})
        assert (stages, released["new"], versions("cascade")) == (ALWAYS, (), before), name


def test_labels_plan_anew_and_train_no_level(taught):
    released, stages = taught
    assert stages == [*POOLED, "things: plan", *ALWAYS]
    assert released["promoted"] and released["new"] == (TASK,)
    assert "the champion promises" in released["reason"], "and does not keep it, now that labels mean something else"
    now, test = champion(), outputs_on_test(champion(), FolderStore(settings.read().store))
    assert 60 <= len(test.labels) <= 100, "a fifth of the labels, and no old texts"
    assert now.artifact.data == fetch_classifiers(open_registry(settings.read(), "cascade"), now)[0].data != test.data
    assert max(candidate.promised for candidate in now.artifact.candidates) < 0.6


def test_unchanged_labels_run_nothing_a_second_time(taught, runs, outcomes):
    before = versions("cascade")
    released, stages = runs(feedback=outcomes)
    assert (stages, released["new"], versions("cascade")) == (ALWAYS, (), before)


def test_labels_without_texts_are_shown_with_what_is_promised(taught):
    from prefect.artifacts import Artifact

    shown = Artifact.get("cascade-labels")
    assert shown is not None and '"labels": 400' in str(shown.data) and "promised" in str(shown.data)


def test_a_champion_with_other_levels_is_run_on_the_texts_of_the_challenger(taught, runs, place):
    """Its outputs on the old texts are there; on the new labels it is run."""
    more = write_outcomes(place / "more", changed_rows(400, seed=9))
    small, large = setting(Path())["levels"]
    changed = [small, {**large, "classifier": {**large["classifier"], "seed": 1}}]
    released, stages = runs(feedback={"outcomes": str(more)}, levels=changed)
    latest = stages[stages.index("things: plan") + 1 :]
    assert latest == [*POOLED[2:], *ALWAYS]
    assert "promises" not in released["reason"], released["reason"]


def test_levels_learn_from_labels_where_the_settings_say_so(taught, runs, outcomes):
    released, stages = runs(feedback=outcomes, learn={"levels": True})
    assert stages[:2] == ["things: train small", "things: train large"]
    assert champion().artifact.candidates[0].promised >= 0 and len(released["new"]) == 3
