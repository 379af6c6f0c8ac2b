"""What the packing flow alone does, and its retraining, under a real Prefect server, with the tiny setting."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.champions import load_champions
from pliant.flows.packing.champions import (
    Record,
    fetch_generator,
    fetch_predictor,
)
from pliant.flows.packing.retrain import packing_retrain
from pliant.flows.release import open_registry
from pliant.flows.run import run as run_flow_of
from pliant.outcomes.files import observed_path
from pliant.packing.artifact import Packing
from tests.fixtures.packing.tiny import setting, write_observed
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.runs import versions

GENERATOR, PREDICTOR, PLAN = (f"pliant-packing-{part}things" for part in ("generator-", "predictor-", ""))

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", ["packing"], indirect=True)]


@pytest.fixture
def retrain(run, place):
    """Runs the retraining on what a service would have written: outputs a good deal longer than were observed."""
    run.unchanged()
    path = observed_path(settings.read().home, "things")

    def once(**changes: Any) -> dict[str, Any]:
        given = {key: value for key, value in setting(place, **changes).items() if key != "name"}
        return run_flow_of(partial(packing_retrain, None), None, given)

    def written(count: int = 120, misleading: bool = False, **changes: Any) -> dict[str, Any]:
        write_observed(path, load_champions(registry(), Packing)["things"], count, misleading)
        return once(**changes)

    yield written
    path.unlink(missing_ok=True)


def registry():
    return open_registry(settings.read(), "packing")


@NEEDS_BFLOAT16
def test_in_another_precision_the_generator_is_stored_measured_and_planned_anew(run):
    released, _ = run(precision="bfloat16", gate={"seeds": 1, "tolerance": 99.0, "tail": 99.0})
    assert released["promoted"]
    registry = open_registry(settings.read(), "packing")
    champion = load_champions(registry, Packing)["things"]
    assert fetch_generator(registry, champion).precision == champion.artifact.precision == "bfloat16"
    assert champion.artifact.kv_bytes == 2 * 8 * 2  # one layer, one head of 8 numbers
    run.unchanged()


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


def test_the_plans_version_says_what_it_was_made_of(run):
    run.unchanged()
    champion = load_champions(registry(), Packing)["things"]
    assert champion.published.tags["pliant.device"] == champion.artifact.device_class
    assert fetch_generator(registry(), champion).context == 64
    learnt = fetch_predictor(registry(), champion)
    assert champion.published.tags["pliant.data"] == learnt.data
    assert learnt.generator == champion.artifact.generator
    assert champion.record(Record).memory.pages == champion.artifact.memory.pages == 24
    assert champion.artifact.kv_bytes == 2 * 8 * 4  # one layer, one head of 8 numbers
    assert len(champion.artifact.output_tokens) == len(champion.artifact.forecasts) == 24


def test_what_a_service_observed_trains_the_predictor_further_and_the_flow_leaves_it_alone(retrain, run):
    before, was = versions("packing"), load_champions(registry(), Packing)["things"].artifact
    released = retrain()
    assert released["promoted"], released["reason"]
    assert set(released["new"]) == {PREDICTOR, PLAN}
    champion = load_champions(registry(), Packing)["things"]
    assert champion.artifact.generator == was.generator
    assert versions("packing")[GENERATOR] == before[GENERATOR]
    assert champion.artifact.steps == was.steps
    assert champion.artifact.output_tokens.mean() > was.output_tokens.mean()
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
        run_flow_of(partial(packing_retrain, None), None, {})
