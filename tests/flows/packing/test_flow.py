"""The real packing flow and its retraining under a real Prefect server, with the tiny setting: what they make and refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from flows import settings
from flows.packing.champions import (
    champion_artifacts,
    fetch_generator,
    fetch_predictor,
    load_champions,
)
from flows.packing.observed import default_path
from flows.packing.reprofile import reprofile
from flows.packing.run import run_connected, run_retraining_connected
from flows.release import open_registry
from pliant.device import device_class, threads
from pliant.errors import InputError, RegistryError
from pliant.progress import silent
from registry import codec
from registry.store import FolderStore
from tests.fixtures.packing.tiny import setting, write_generator, write_observed, write_prompts
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.runs import Runs, answer, place_in, versions

GENERATOR, PREDICTOR, PLAN = (f"pliant-packing-{part}things" for part in ("generator-", "predictor-", ""))
NAMES = (GENERATOR, PREDICTOR, PLAN)
ALWAYS = ["things: gate", "publish"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory, prefect) -> Iterator[Path]:
    """A working directory with prompts, state and registry of its own."""
    folder = tmp_path_factory.mktemp("packing-flow")
    write_prompts(folder)
    write_generator(folder)
    with place_in(folder, prefect):
        yield folder


@pytest.fixture(scope="module")
def runs(place) -> Runs:
    """Runs the flow; gives what it released and which stages did work."""
    return Runs(lambda **changes: run_connected(None, setting(place, **changes)))


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


@pytest.fixture
def retrain(run, place):
    """Runs the retraining on what a service would have written: outputs a good deal longer than were observed."""
    run.unchanged()
    path = default_path(settings.read().home, "things")

    def once(**changes: Any) -> dict[str, Any]:
        given = {key: value for key, value in setting(place, **changes).items() if key != "name"}
        return run_retraining_connected(None, None, given)

    def written(count: int = 120, misleading: bool = False, **changes: Any) -> dict[str, Any]:
        write_observed(path, load_champions(registry())["things"], count, misleading)
        return once(**changes)

    yield written
    path.unlink(missing_ok=True)


def registry():
    return open_registry(settings.read(), "packing")


def test_the_first_run_publishes_and_promotes_generator_predictor_and_plan(first):
    assert first["promoted"], first["reason"]
    assert first["versions"] == dict.fromkeys(NAMES, 1)
    assert sorted(first["new"]) == sorted(NAMES)


def test_a_second_run_with_nothing_changed_trains_and_measures_nothing_and_keeps_every_version(first, second):
    released, stages = second
    assert stages == ALWAYS
    assert released["new"] == ()
    assert released["versions"] == versions("packing") == first["versions"]


def test_an_artifact_that_has_gone_is_made_again_and_nothing_else(run):
    run.unchanged()
    store = FolderStore(settings.read().store)
    (lost,) = (store.root / "packing" / "predictor-things").iterdir()
    before, digest = versions("packing"), codec.digest(lost)
    shutil.rmtree(lost)
    released, stages = run()
    assert stages == ["things: predictor", *ALWAYS]
    assert codec.digest(lost) == digest
    assert released["versions"] == before


def test_a_changed_memory_is_measured_and_planned_again_and_keeps_generator_and_predictor(run):
    run.unchanged()
    released, stages = run(memory={**setting(Path())["memory"], "pages": 32})
    assert stages == ["things: step profile", "things: plan", *ALWAYS]
    assert released["new"] == (PLAN,)


@NEEDS_BFLOAT16
def test_in_another_precision_the_generator_is_stored_measured_and_planned_anew(run):
    released, _ = run(precision="bfloat16", gate={"seeds": 1, "tolerance": 99.0, "tail": 99.0})
    assert released["promoted"]
    registry = open_registry(settings.read(), "packing")
    champion = load_champions(registry)["things"]
    assert fetch_generator(registry, champion).precision == champion.packing.precision == "bfloat16"
    assert champion.packing.kv_bytes == 2 * 8 * 2  # one layer, one head of 8 numbers
    run.unchanged()


def test_another_temperature_is_observed_and_learnt_anew_by_the_same_generator(run):
    run.unchanged()
    before = versions("packing")
    released, stages = run(lengths={**setting(Path())["lengths"], "temperature": 0.5})
    assert stages == ["things: lengths", "things: predictor", "things: plan", *ALWAYS]
    assert set(released["new"]) == {PREDICTOR, PLAN}
    assert released["versions"][GENERATOR] == before[GENERATOR]


def test_a_challenger_that_is_worse_is_published_and_not_promoted(run):
    """A predictor that was trained at a rate far too high."""
    run.unchanged()
    before = versions("packing")
    hasty = {**setting(Path())["predictor"], "epochs": 1, "rate": 5.0}
    released, _ = run(predictor=hasty, gate={"seeds": 1, "tolerance": 0.02})
    assert not released["promoted"]
    assert "its predictor's pinball loss is" in released["reason"]
    assert "worse than the champion's" in released["reason"]
    assert versions("packing") == before
    assert versions("packing", "challenger")[PLAN] == released["versions"][PLAN] != before[PLAN]


def test_the_run_holds_figures_reports_metrics_and_parameters(second):
    released, _ = second
    client = registry().connect()
    files = {file.path for file in client.list_artifacts(released["run"])}
    figures = {f"{name}.png" for name in ("predicted", "lengths", "steps", "policies")}
    assert {"gate.json", "stages.json", "plan.json", *figures} <= files
    gate = json.loads(Path(client.download_artifacts(released["run"], "gate.json")).read_text())
    assert gate["challenger"]["fared"]["mean"] > 0
    run = client.get_run(released["run"])
    assert run.info.status == "FINISHED"
    assert run.data.params["memory.pages"] == "24"
    shown = {"bucket_accuracy", "majority_class", "tau", "pinball", "constant_pinball", "coverage_0.9", "over_0.9"}
    assert shown <= set(run.data.metrics)
    assert {"simulated.mean_seconds.paged", "simulated.p99_seconds.default"} <= set(run.data.metrics)
    assert [item.dataset.name for item in run.inputs.dataset_inputs] == ["things"]


def test_the_plans_version_says_what_it_was_made_of(run):
    run.unchanged()
    champion = load_champions(registry())["things"]
    assert champion.published.tags["pliant.device"] == champion.packing.device_class
    assert fetch_generator(registry(), champion).context == 64
    learnt = fetch_predictor(registry(), champion)
    assert champion.published.tags["pliant.data"] == learnt.data
    assert learnt.generator == champion.packing.generator
    assert champion.record.memory.pages == champion.packing.memory.pages == 24
    assert champion.packing.kv_bytes == 2 * 8 * 4  # one layer, one head of 8 numbers
    assert len(champion.packing.output_tokens) == len(champion.packing.forecasts) == 24


def test_any_mlflow_client_can_load_the_champion_and_ask_it(first, place):
    inputs = pd.DataFrame({"arrival": [0.0, 0.1], "prompt_tokens": [5, 9], "output_tokens": [10, 3]})
    assert list(answer(PLAN, inputs).columns) == ["first_token", "seconds", "preemptions"]


def test_measured_on_another_device_the_champion_is_planned_again_and_the_flow_leaves_it_alone(run):
    run.unchanged()
    before, was = versions("packing"), champion_artifacts(settings.read())["things"]
    published, run.standing = reprofile("cpu", 2, silent, other_device=True), None
    now = champion_artifacts(settings.read())["things"]
    with threads(2):
        assert now.device_class == device_class("cpu") != was.device_class
    assert (now.generator, now.predictor) == (was.generator, was.predictor)
    assert published["things"] == versions("packing")[PLAN] > before[PLAN]
    released, stages = run()
    assert "nothing has changed" in released["reason"]
    assert stages == []
    assert versions("packing")[PLAN] == published["things"]


def test_what_a_service_observed_trains_the_predictor_further_and_the_flow_leaves_it_alone(retrain, run):
    before, was = versions("packing"), load_champions(registry())["things"].packing
    released = retrain()
    assert released["promoted"], released["reason"]
    assert set(released["new"]) == {PREDICTOR, PLAN}
    champion = load_champions(registry())["things"]
    assert champion.packing.generator == was.generator
    assert versions("packing")[GENERATOR] == before[GENERATOR]
    assert champion.packing.steps == was.steps
    assert champion.packing.output_tokens.mean() > was.output_tokens.mean()
    again = retrain()
    assert "nothing was observed since" in again["reason"]
    assert run()[0]["versions"] == {PLAN: champion.published.version}


def test_too_few_outputs_release_nothing_and_say_so(retrain):
    before = versions("packing")
    released = retrain(count=10)
    assert not released["promoted"]
    assert "observed 10 outputs" in released["reason"]
    assert versions("packing") == before


def test_a_retrained_predictor_that_the_gate_refuses_does_not_go_live(retrain):
    """It has learnt from outputs that say nothing of those which it is judged by."""
    retrain()
    before = versions("packing")
    released = retrain(count=150, misleading=True, gate={"seeds": 1, "tolerance": 0.02, "tail": 9.0})
    assert not released["promoted"]
    assert "its predictor's pinball loss is" in released["reason"]
    assert versions("packing") == before
    assert versions("packing", "challenger")[PREDICTOR] > before[PREDICTOR]


def test_without_a_champion_there_is_nothing_to_train_further(place, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(RegistryError, match="no champion of packing"):
        run_retraining_connected()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": "json:none.jsonl"}, "prompts is none.jsonl .No such file"),
        ({"generator": "path:none"}, "existing folder"),
        ({"device": "cuda:9"}, "device is cuda:9"),
    ],
)
def test_a_failure_is_one_sentence(place, changes, words):
    with pytest.raises(InputError, match=words):
        run_connected(None, setting(place, **changes))
