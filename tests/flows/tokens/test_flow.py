"""The real flow under a real Prefect server, with the tiny setting: what it makes, keeps, makes again and refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows import settings
from flows.release import TRAINING, open_registry
from flows.tokens import config as tokens_config
from flows.tokens.champions import load_champion
from flows.tokens.run import run_connected
from flows.tokens.stages import foundation_key, task_key
from pliant.errors import InputError
from registry import codec
from registry.mlflow_store import PREVIOUS
from registry.store import FolderStore
from tests.fixtures.runs import PATIENCE, Runs, answer, place_in, versions
from tests.fixtures.tokens.tiny import setting
from training.data import digits

NAMES = ("pliant-tokens-backbone", "pliant-tokens-profile", "pliant-tokens-task-digit")
TASK = ["task digit"]
ALWAYS = ["gate", "publish"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory, prefect) -> Iterator[Path]:
    """A working directory with state and registry of its own."""
    folder = tmp_path_factory.mktemp("flow")
    with place_in(folder, prefect):
        yield folder


@pytest.fixture(scope="module")
def runs(place) -> Runs:
    """Runs the flow; gives what it released and which stages did work."""
    return Runs(lambda **changes: run_connected(None, setting(**changes)))


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


def task_in_store() -> tuple[FolderStore, str]:
    store, config, data = FolderStore(settings.read().store), tokens_config.read(None, setting()), digits("digit")
    key = foundation_key(config, data)
    return store, task_key(config, data, {"key": key, "digest": codec.digest(store.path(key))})


def test_the_first_run_publishes_and_promotes_everything(first):
    assert first["promoted"]
    assert first["versions"] == dict.fromkeys(NAMES, 1)
    assert sorted(first["new"]) == sorted(NAMES)


def test_a_second_run_with_nothing_changed_trains_nothing_and_keeps_every_version(first, second):
    released, stages = second
    assert stages == ALWAYS
    assert released["new"] == ()
    assert released["versions"] == versions("tokens") == first["versions"]


def test_an_artifact_that_has_gone_is_made_again_and_nothing_else(run):
    run.unchanged()
    store, key = task_in_store()
    before, digest = versions("tokens"), codec.digest(store.path(key))
    shutil.rmtree(store.path(key))
    released, stages = run()
    assert stages == [*TASK, *ALWAYS]
    assert codec.digest(store.path(key)) == digest
    assert released["versions"] == before


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"gate": {"seeds": 2, "tolerance": 1.0}}, []),
        ({"latency": {**setting()["latency"], "batches": [1, 4]}}, ["latency profile"]),
        ({"task": {"epochs": 0.05, "head_steps": 6}}, [*TASK, "latency profile"]),
    ],
)
def test_a_changed_setting_makes_again_only_what_depends_on_it(run, changes, made):
    run.unchanged()
    before = versions("tokens")
    released, stages = run(**changes)
    assert stages == [*made, *ALWAYS]
    assert released["versions"]["pliant-tokens-backbone"] == before["pliant-tokens-backbone"]
    assert bool(released["new"]) == bool(made)


def test_a_worse_challenger_is_published_and_not_promoted(run):
    """A head that never learned is far below one that did."""
    run(task={"epochs": 0.05, "head_steps": 200})
    before = versions("tokens")
    released, _ = run(task={"epochs": 0.05, "head_steps": 0}, gate={"seeds": 1})
    assert not released["promoted"]
    assert "worse than the champion's" in released["reason"]
    assert versions("tokens") == before
    assert (
        versions("tokens", "challenger")["pliant-tokens-task-digit"] == released["versions"]["pliant-tokens-task-digit"]
    )


def test_the_champion_so_far_stays_within_reach(run):
    before = versions("tokens")
    released, _ = run(task={"epochs": 0.05, "head_steps": 250})
    assert released["promoted"]
    assert versions("tokens", PREVIOUS)["pliant-tokens-task-digit"] == before["pliant-tokens-task-digit"]


def test_the_run_holds_figures_the_gates_reports_metrics_and_parameters(second):
    released, _ = second
    client = open_registry(settings.read(), "tokens").connect()
    files = {file.path for file in client.list_artifacts(released["run"])}
    assert {"gate.json", "trade_off.png", "rate_map.png"} <= files
    gate = json.loads(Path(client.download_artifacts(released["run"], "gate.json")).read_text())
    assert gate["reason"] == released["reason"]
    assert gate["challenger"][0]["requests"] == gate["champion"][0]["requests"] > 0
    run = client.get_run(released["run"])
    assert run.info.status == "FINISHED"
    assert run.data.params["task.head_steps"] == "5"
    assert 0 <= run.data.metrics["test_accuracy.digit.m5"] <= 1
    assert [item.dataset.name for item in run.inputs.dataset_inputs] == ["digit"]


def test_a_sweep_of_the_learning_rate_is_logged_and_stays_with_the_version(run):
    released, _ = run(task={"epochs": 0.05, "head_steps": 5, "prompt_rates": [0.01, 0.1], "trial_images": 32})
    registry = open_registry(settings.read(), "tokens")
    client = registry.connect()
    assert {"training.json", "sweeps.png"} <= {file.path for file in client.list_artifacts(released["run"])}
    metrics = client.get_run(released["run"]).data.metrics
    noted = json.loads(registry.version("pliant-tokens-task-digit", "challenger").tags[TRAINING])
    assert metrics["sweep_accuracy.digit.rate0.01"] == noted["sweep"]["accuracy"][0]
    assert metrics["training_seconds.task-digit"] == noted["seconds"]


def test_any_mlflow_client_can_load_the_champion_and_predict(first, place):
    assert answer("pliant-tokens-task-digit", np.zeros((3, 16, 16, 3), np.uint8)).shape == (3, 10)


def test_the_champion_can_be_read_back_whole(first):
    bundle = load_champion(settings.read())
    assert [task.name for task in bundle.tasks] == ["digit"]
    assert bundle.tasks[0].backbone == bundle.profile.backbone


@pytest.mark.parametrize(
    ("config", "overrides", "sentence"),
    [
        (None, {"data": ["parquet:absent.parquet"]}, "data is absent.parquet (No such file or directory), "),
        (None, {"backbone": "keras:vit"}, "backbone is keras:vit, but must be embedded, timm:ARCHITECTURE or file:"),
        ("absent.toml", {}, "config is absent.toml, but must be a readable TOML file"),
    ],
)
def test_a_mistake_comes_out_of_the_flow_as_the_sentence_that_it_is(place, config, overrides, sentence):
    with pytest.raises(InputError) as error:
        run_connected(config, setting(**overrides))
    assert str(error.value).startswith(sentence)


def test_the_command_with_a_server_of_its_own_ends_with_one_sentence_and_status_2(place, tmp_path):
    """Prefect's client used to add a line about events that were still on their way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    process = subprocess.run(
        [sys.executable, "-m", "cli", "train", "tokens", "--data", "digits:chess"],
        cwd=place,
        env={**kept, "PLIANT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 2
    *progress, sentence = process.stderr.splitlines()
    assert sentence == "pliant: task is chess, but must be one of digit, loops, stroke"
    assert all(
        line.startswith(("The flow takes its own sizes", "Sizes: ", "Device: ", "Prefect's server: "))
        for line in progress
    )
