"""What the cascade flow alone does: levels one by one, saved outputs, several tasks, half precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.errors import PliantError, RegistryError
from pliant.flows import settings
from pliant.flows.cascade.champions import (
    Record,
    champion_artifacts,
    fetch_classifiers,
    load_champions,
    outputs_on_test,
)
from pliant.flows.cascade.reprofile import reprofile
from pliant.flows.release import open_registry
from pliant.flows.run import run_connected
from pliant.models.artifact import Classifier
from pliant.progress import silent
from pliant.registry import codec
from pliant.registry.store import FolderStore
from tests.fixtures.cascade.tiny import setting, write_texts
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.runs import versions

SMALL, LARGE = "pliant-cascade-model-things-small", "pliant-cascade-model-things-large"
TASK = "pliant-cascade-task-things"
NAMES = (SMALL, LARGE, TASK)
AFTER = [
    *("things: outputs, profiling", "things: outputs, test"),
    *("things: linear model", "things: latency profile", "things: plan"),
]
ALWAYS = ["things: gate", "publish"]

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", ["cascade"], indirect=True)]


def test_a_changed_level_is_trained_alone_and_published_with_the_task(run):
    small, large = setting(Path())["levels"]
    released, stages = run(levels=[small, {**large, "classifier": {**large["classifier"], "seed": 1}}])
    assert stages == ["things: train large", *AFTER, *ALWAYS]
    assert set(released["new"]) == {LARGE, TASK}


def test_a_worse_challenger_is_published_and_not_promoted(run):
    """Models that have hardly seen a text are far below those that learnt."""
    patient = [
        {**level, "classifier": {**level["classifier"], "epochs": 12, "patience": 12}}
        for level in setting(Path())["levels"]
    ]
    run(levels=patient)
    before = versions("cascade")
    released, _ = run(gate={"seeds": 1, "tolerance": 0.001, "below_linear": True})
    assert not released["promoted"]
    assert "worse than" in released["reason"]
    assert versions("cascade") == before
    assert versions("cascade", "challenger")[TASK] == released["versions"][TASK] != before[TASK]


def test_the_tasks_version_says_what_it_was_made_of(run):
    run.unchanged()
    champion = load_champions(open_registry(settings.read(), "cascade"))["things"]
    tags = champion.published.tags
    assert tags["pliant.data"] == champion.artifact.data
    assert tags["pliant.device"] == champion.artifact.device
    registry = open_registry(settings.read(), "cascade")
    for level in champion.artifact.levels:
        number = int(tags[f"pliant.model.{level.name}"])
        folder, published = registry.fetch(f"pliant-cascade-model-things-{level.name}", number)
        assert published.digest == level.classifier
        assert codec.load(Classifier, folder).name == level.name
    assert [each.name for each in fetch_classifiers(registry, champion)] == ["small", "large"]
    assert champion.record(Record).outputs != champion.record(Record).test


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
    cascades = champion_artifacts(settings.read())
    assert (cascades["things"].pair, cascades["alike"].pair) == (False, True)


@NEEDS_BFLOAT16
def test_half_precision_is_served_where_it_is_named_and_tolerated_and_can_be_profiled_again(run):
    released, _ = run(arithmetic={"precision": "bfloat16", "tolerance": 0.9})
    champion = load_champions(open_registry(settings.read(), "cascade"))["things"]
    assert released["promoted"] and champion.artifact.precision == "bfloat16"
    assert outputs_on_test(champion, FolderStore(settings.read().store)).precision == "bfloat16"
    assert len(champion.record(Record).other) == 2, "both outputs in float32"
    reprofile("cpu", 1, silent)
    again = load_champions(open_registry(settings.read(), "cascade"))["things"]
    assert again.artifact.precision == outputs_on_test(again, FolderStore(settings.read().store)).precision
    assert len({again.record(Record).outputs, again.record(Record).test, *again.record(Record).other}) == 4
