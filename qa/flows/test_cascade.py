"""What the cascade flow alone does: levels one by one, saved outputs, several tasks, labels, half precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pliant import labelling
from pliant.cascade.artifact import BAG, CLASSIFIER, EXIT, KINDS, Cascade
from pliant.errors import PliantError, RegistryError
from pliant.flows import settings
from pliant.flows.cascade.champions import Record, fetch_levels, outputs_on_test
from pliant.flows.cascade.reprofile import reprofile
from pliant.flows.champions import champion_artifacts, load_champions
from pliant.flows.release import open_registry
from pliant.flows.run import run_connected
from pliant.progress import silent
from pliant.registry import codec
from pliant.registry.store import FolderStore
from tests.fixtures.cascade.lessons import changed_rows, write_outcomes
from tests.fixtures.cascade.tiny import setting, write_texts
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.runs import versions

BAG_MODEL, EXIT_MODEL, LARGE = (f"pliant-cascade-model-things-{level}" for level in ("bag", "exit1", "large"))
TASK = "pliant-cascade-task-things"
DISTILLED = ["things: distil a bag of n-grams", "things: distil an exit after layer 1"]
AFTER = [
    *("things: outputs, profiling", "things: outputs, test"),
    *("things: linear model", "things: latency profile", "things: plan"),
]
ALWAYS = ["things: gate", "publish"]

LEARNT = [f"things: outputs, {split}" for split in ("profiling", "test")]

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", ["cascade"], indirect=True)]


def test_a_changed_large_model_is_trained_alone_and_published_with_all_that_is_distilled_from_it(run):
    small, large = setting(Path())["levels"]
    released, stages = run(levels=[small, {**large, "classifier": {**large["classifier"], "seed": 1}}])
    assert stages == ["things: train large", "things: what the large model says", *DISTILLED, *AFTER, *ALWAYS]
    assert set(released["new"]) == {BAG_MODEL, EXIT_MODEL, LARGE, TASK}


def test_what_is_distilled_changes_without_the_model_that_it_is_distilled_from(run):
    run.unchanged()
    released, stages = run(distil={**setting(Path())["distil"], "seed": 1})
    assert stages == [*DISTILLED, *AFTER, *ALWAYS]
    assert set(released["new"]) == {BAG_MODEL, EXIT_MODEL, TASK}


def test_texts_without_labels_are_learnt_from_and_change_no_classifier(run, place):
    run.unchanged()
    more = write_texts(place, "more", 40, seed=9)
    [task] = setting(place)["tasks"]
    released, stages = run(tasks=[{**task, "unlabelled": f"json:{more}"}])
    assert stages == ["things: what the large model says", *DISTILLED, *AFTER, *ALWAYS]
    assert set(released["new"]) == {BAG_MODEL, EXIT_MODEL, TASK}


def test_the_tasks_version_says_what_it_was_made_of(run):
    run.unchanged()
    champion = load_champions(open_registry(settings.read(), "cascade"), Cascade)["things"]
    tags = champion.published.tags
    assert tags["pliant.data"] == champion.artifact.data
    assert tags["pliant.device"] == champion.artifact.device
    registry = open_registry(settings.read(), "cascade")
    for level in champion.artifact.levels:
        number = int(tags[f"pliant.model.{level.name}"])
        folder, published = registry.fetch(f"pliant-cascade-model-things-{level.name}", number)
        assert published.digest == level.classifier
        assert codec.load(KINDS[level.kind], folder).name == level.name
    levels = fetch_levels(registry, champion)
    assert [each.name for each in levels.values()] == ["bag", "exit1", "small", "large"]
    *_, large = levels
    assert levels[champion.artifact.levels[1].classifier].large == large
    assert champion.record(Record).outputs != champion.record(Record).test


def test_a_profile_measures_bag_exit_and_what_is_left_behind_it_anew(run):
    run.unchanged()
    before, _ = champion().artifact.levels, reprofile("cpu", 1, silent)
    run.standing = None
    after = champion().artifact.levels
    assert [(level.kind, level.classifier) for level in after] == [(level.kind, level.classifier) for level in before]
    assert [level.kind for level in after] == [BAG, EXIT, CLASSIFIER, CLASSIFIER]
    assert [level.latency == old.latency for level, old in zip(after, before, strict=True)] == [False] * 4
    assert [resumed.layers for resumed in after[-1].resumed] == [after[1].layers] == [1]
    assert after[-1].resumed != before[-1].resumed


def test_without_the_saved_outputs_nothing_is_measured_and_the_sentence_says_what_helps(run):
    store = FolderStore(settings.read().store)
    kept = store.root / "cascade" / "outputs-things-test"
    kept.rename(kept.with_name("away"))
    try:
        with pytest.raises(RegistryError, match=r"saved outputs of the task things are not in .*pliant train cascade"):
            reprofile("cpu", 1, silent, other_device=True)
    finally:
        kept.with_name("away").rename(kept)


def test_two_tasks_are_released_together_and_one_takes_pairs(run, place):
    write_texts(place, "pairs", pair=True)
    tasks = [*setting(place)["tasks"], {"data": f"json:{place / 'pairs.jsonl'}", "name": "alike"}]
    with pytest.raises(
        PliantError, match=r"task 'alike' is not in the live release of cascade (.*things.*): name it in"
    ):
        run_connected("cascade", None, setting(place, tasks=tasks, other_device=True))
    released, stages = run(tasks=tasks)
    assert "pliant-cascade-task-alike" in released["new"]
    assert [stage for stage in stages if stage.startswith("things")] == ["things: gate"]
    cascades = champion_artifacts(settings.read(), Cascade)
    assert (cascades["things"].pair, cascades["alike"].pair) == (False, True)


@NEEDS_BFLOAT16
def test_half_precision_is_served_where_it_is_named_and_tolerated_and_can_be_profiled_again(run):
    released, _ = run(arithmetic={"precision": "bfloat16", "tolerance": 0.9})
    champion = load_champions(open_registry(settings.read(), "cascade"), Cascade)["things"]
    assert released["promoted"] and champion.artifact.precision == "bfloat16"
    assert outputs_on_test(champion, FolderStore(settings.read().store)).precision == "bfloat16"
    assert len(champion.record(Record).other) == 2, "both outputs in float32"
    reprofile("cpu", 1, silent)
    again = load_champions(open_registry(settings.read(), "cascade"), Cascade)["things"]
    assert again.artifact.precision == outputs_on_test(again, FolderStore(settings.read().store)).precision
    assert len({again.record(Record).outputs, again.record(Record).test, *again.record(Record).other}) == 4


@pytest.fixture(scope="module")
def outcomes(world) -> dict[str, Any]:
    path = write_outcomes(world.folder / "outcomes", changed_rows(400))
    return {"feedback": {"outcomes": str(path)}, "learn": {"rows": 200}}


@pytest.fixture(scope="module")
def taught(world, outcomes) -> tuple[dict[str, Any], list[str]]:
    """The run that learns from labels for the first time."""
    world.runs.unchanged()
    return world.runs(**outcomes)


def champion(task="things"):
    return load_champions(open_registry(settings.read(), "cascade"), Cascade)[task]


def test_labels_plan_anew_and_train_no_level(taught):
    released, stages = taught
    assert stages == [*LEARNT, "things: plan", *ALWAYS]
    assert released["promoted"] and released["new"] == (TASK,)
    assert "the champion promises" in released["reason"], "and does not keep it, now that labels mean something else"
    now, test = champion(), outputs_on_test(champion(), FolderStore(settings.read().store))
    assert 60 <= len(test.labels) <= 100, "a fifth of the labels, and no old texts"
    *_, large = fetch_levels(open_registry(settings.read(), "cascade"), now).values()
    assert now.artifact.data == large.data != test.data
    assert max(candidate.promised for candidate in now.artifact.candidates) < 0.6


def test_unchanged_labels_run_nothing_a_second_time(taught, run, outcomes):
    before = versions("cascade")
    released, stages = run(**outcomes)
    assert (stages, released["new"], versions("cascade")) == (ALWAYS, (), before)


def test_labels_without_texts_are_shown_with_what_is_promised(taught):
    from prefect.artifacts import Artifact

    shown = Artifact.get("cascade-labels")
    assert shown is not None and '"labels": 400' in str(shown.data) and "promised" in str(shown.data)


def test_a_champion_with_other_levels_is_run_on_the_texts_of_the_challenger(taught, run, outcomes, place):
    """Its outputs on the old texts are there; on the new labels it is run."""
    more = write_outcomes(place / "more", changed_rows(400, seed=9))
    small, large = setting(Path())["levels"]
    changed = [small, {**large, "classifier": {**large["classifier"], "seed": 1}}]
    released, stages = run(**outcomes | {"feedback": {"outcomes": str(more)}}, levels=changed)
    latest = stages[stages.index("things: plan") + 1 :]
    assert latest == [LEARNT[1], *ALWAYS]
    assert "promises" not in released["reason"], released["reason"]


def test_texts_without_labels_are_planned_with_and_the_labels_that_people_give_are_used_next_time(run, place):
    more = write_texts(place, "plenty", 400, seed=11)
    [task] = setting(place)["tasks"]
    changes = {
        "tasks": [task, {**task, "name": "new", "unlabelled": f"json:{more}"}],
        "learn": {"rows": 60},
        "plan": {"target": 0.3, "further": ()},
    }
    run(**changes)
    before = champion("new").artifact
    assert before.promise == "right" and before.candidates[0].levels == (3,), "nothing is proven without labels"
    folder = labelling.folder_of(settings.read().home)
    wanted = labelling.unanswered(folder, "new").texts
    label = {json.loads(line)["text"]: json.loads(line)["label"] for line in more.read_text().splitlines()}
    assert len(wanted) >= 60 and all(text in label for text, _ in wanted)
    labelling.take(folder, "new", [(*text, label[text[0]]) for text in wanted], "me")
    _, stages = run(**changes)
    assert [stage for stage in stages if "new" in stage] == ["new: labels that were given", "new: plan", "new: gate"]
    assert labelling.tasks(folder) == []
    assert champion("new").artifact.candidates[0].labels >= 60
    reprofile("cpu", 1, silent)
    run.standing = None
    assert champion("new").artifact.candidates[0].labels >= 60, "a new plan knows them, too"
