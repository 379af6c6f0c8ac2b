"""The real cascade flow under a real Prefect server, with the tiny setting: what it makes, keeps and refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from flows import settings
from flows.cascade.champions import champion_artifacts, fetch_classifiers, load_champions
from flows.cascade.reprofile import reprofile
from flows.cascade.run import run_connected
from flows.release import open_registry
from pliant.device import device_class, threads
from pliant.errors import InputError, PliantError, RegistryError
from pliant.models.artifact import Classifier
from pliant.progress import silent
from registry import codec
from registry.store import FolderStore
from tests.fixtures.cascade.tiny import setting, write_texts
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.runs import Runs, answer, place_in, versions

SMALL, LARGE = "pliant-cascade-model-things-small", "pliant-cascade-model-things-large"
TASK = "pliant-cascade-task-things"
NAMES = (SMALL, LARGE, TASK)
AFTER = [
    *("things: outputs, profiling", "things: outputs, test"),
    *("things: linear model", "things: latency profile", "things: plan"),
]
ALWAYS = ["things: gate", "publish"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory, prefect) -> Iterator[Path]:
    """A working directory with texts, state and registry of its own."""
    folder = tmp_path_factory.mktemp("cascade-flow")
    write_texts(folder)
    with place_in(folder, prefect):
        yield folder


@pytest.fixture(scope="module")
def runs(place) -> Runs:
    """Runs the flow; gives what it released and which stages did work."""
    # Champions of two classes of device take turns here.
    return Runs(lambda **changes: run_connected(None, setting(place, **{"other_device": True, **changes}), True))


@pytest.fixture(scope="module")
def first(runs) -> dict[str, Any]:
    """What the very first run released."""
    return runs()[0]


@pytest.fixture(scope="module")
def second(first, runs) -> tuple[dict[str, Any], list[str]]:
    """What a second run with nothing changed released, and which stages did work."""
    runs.unchanged()
    return runs()


@pytest.fixture
def run(first, runs) -> Runs:
    """After the first run."""
    return runs


def test_the_first_run_publishes_and_promotes_every_level_and_the_task(first):
    assert first["promoted"], first["reason"]
    assert first["versions"] == dict.fromkeys(NAMES, 1)
    assert sorted(first["new"]) == sorted(NAMES)


def test_a_second_run_with_nothing_changed_trains_and_measures_nothing_and_keeps_every_version(first, second):
    released, stages = second
    assert stages == ALWAYS
    assert released["new"] == ()
    assert released["versions"] == versions("cascade") == first["versions"]


def test_an_artifact_that_has_gone_is_made_again_and_nothing_else(run):
    run.unchanged()
    store = FolderStore(settings.read().store)
    (lost,) = (store.root / "cascade" / "outputs-things-test").iterdir()
    before, digest = versions("cascade"), codec.digest(lost)
    shutil.rmtree(lost)
    released, stages = run()
    assert stages == ["things: outputs, test", *ALWAYS]
    assert codec.digest(lost) == digest
    assert released["versions"] == before


def test_a_changed_plan_measures_nothing_again_and_keeps_the_levels(run):
    run.unchanged()
    released, stages = run(plan={"drop": 0.05})
    assert stages == ["things: plan", *ALWAYS]
    assert [released["versions"][name] for name in (SMALL, LARGE)] == [1, 1]
    assert released["new"] == (TASK,)


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


def test_the_run_holds_figures_reports_metrics_curves_and_parameters(second):
    released, _ = second
    client = open_registry(settings.read(), "cascade").connect()
    files = {file.path for file in client.list_artifacts(released["run"])}
    figures = {"candidates-things.png", "curves-things.png", "reliability-things-small.png"}
    assert {"gate.json", "training-things.json", *figures} <= files
    gate = json.loads(Path(client.download_artifacts(released["run"], "gate.json")).read_text())["things"]
    assert gate["challenger"]["reports"][0]["requests"] == gate["champion"]["reports"][0]["requests"] > 0
    run = client.get_run(released["run"])
    assert run.info.status == "FINISHED"
    assert run.data.params["levels.0.scratch.width"] == "16"
    assert 0 <= run.data.metrics["test_accuracy.default.things"] <= 1
    assert len(client.get_metric_history(released["run"], "held_out_loss.things.small")) == 2
    assert [item.dataset.name for item in run.inputs.dataset_inputs] == ["things"]


def test_the_tasks_version_says_what_it_was_made_of(run):
    run.unchanged()
    champion = load_champions(open_registry(settings.read(), "cascade"))["things"]
    tags = champion.published.tags
    assert tags["pliant.data"] == champion.cascade.data
    assert tags["pliant.device"] == champion.cascade.device
    registry = open_registry(settings.read(), "cascade")
    for level in champion.cascade.levels:
        number = int(tags[f"pliant.model.{level.name}"])
        folder, published = registry.fetch(f"pliant-cascade-model-things-{level.name}", number)
        assert published.digest == level.classifier
        assert codec.load(Classifier, folder).name == level.name
    assert [each.name for each in fetch_classifiers(registry, champion)] == ["small", "large"]
    assert champion.record.outputs != champion.record.test


def test_any_mlflow_client_can_load_the_champion_and_predict(first, place):
    texts = pd.DataFrame({"text": ["an old oak", "some iron and the"]})
    assert list(answer(TASK, texts).columns) == ["label", "confidence", "level"]


def test_measured_on_another_device_the_champions_are_planned_again_from_what_was_saved(run):
    run.unchanged()
    before, was = versions("cascade"), champion_artifacts(settings.read())["things"]
    published, run.standing = reprofile("cpu", 2, silent, other_device=True), None
    now = champion_artifacts(settings.read())["things"]
    with threads(2):
        assert now.device == device_class("cpu") != was.device
    assert published == {"things": before[TASK] + 1}
    assert [level.classifier for level in now.levels] == [level.classifier for level in was.levels]
    assert set(now.test_accuracy) == {candidate.name for candidate in now.candidates}
    assert versions("cascade") == before | {TASK: before[TASK] + 1}
    released, _ = run(other_device=False)
    assert not released["promoted"] and f"the champion on {now.device}" in released["reason"]
    assert versions("cascade") == before | {TASK: before[TASK] + 1}
    run.standing = None


def test_without_the_saved_outputs_nothing_is_measured_and_the_sentence_says_what_helps(first):
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
        run_connected(None, setting(place, tasks=tasks, other_device=True))
    released, stages = run(tasks=tasks)
    assert "pliant-cascade-task-alike" in released["new"]
    assert [stage for stage in stages if stage.startswith("things")] == ["things: gate"]
    cascades = champion_artifacts(settings.read())
    assert (cascades["things"].pair, cascades["alike"].pair) == (False, True)


@pytest.mark.parametrize(
    ("config", "overrides", "sentence"),
    [
        (
            None,
            {"data": ["json:absent.jsonl"]},
            "data is absent.jsonl (No such file or directory), but must be a readable",
        ),
        (
            None,
            {"levels": [{"name": "a", "start": "keras:x"}]},
            "start of level a is keras:x, but must be scratch, path:",
        ),
        ("absent.toml", {}, "config is absent.toml, but must be a readable TOML file"),
    ],
)
def test_a_mistake_comes_out_of_the_flow_as_the_sentence_that_it_is(place, config, overrides, sentence):
    with pytest.raises(InputError) as error:
        run_connected(config, setting(place, **overrides))
    assert str(error.value).startswith(sentence)


@NEEDS_BFLOAT16
def test_half_precision_is_served_where_it_is_named_and_tolerated_and_can_be_profiled_again(run):
    released, _ = run(arithmetic={"precision": "bfloat16", "tolerance": 0.9})
    champion = load_champions(open_registry(settings.read(), "cascade"))["things"]
    assert released["promoted"] and champion.cascade.precision == "bfloat16"
    assert champion.test(FolderStore(settings.read().store)).precision == "bfloat16"
    assert len(champion.record.other) == 2, "both outputs in float32"
    reprofile("cpu", 1, silent)
    again = load_champions(open_registry(settings.read(), "cascade"))["things"]
    assert again.cascade.precision == again.test(FolderStore(settings.read().store)).precision
    assert len({again.record.outputs, again.record.test, *again.record.other}) == 4
