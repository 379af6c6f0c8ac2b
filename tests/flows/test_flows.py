"""The whole flow of every system under a real Prefect server, in tiny settings: what it makes, keeps and refuses."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from pliant import systems
from pliant.errors import InputError
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.flows.run import run_connected
from pliant.flows.tokens.config import TokensFlowConfig, read
from pliant.progress import silent
from pliant.registry.store import FolderStore
from tests.fixtures.runs import answer, versions
from tests.fixtures.tokens.tiny import setting as tokens_setting
from tests.flows.worlds import FLOWS

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", list(FLOWS), indirect=True)]


def test_the_first_run_publishes_and_promotes_everything(world):
    first, models = world.first, world.flow.models
    assert first["promoted"], first["reason"]
    assert first["versions"] == dict.fromkeys(models, 1)
    assert sorted(first["new"]) == sorted(models)


def test_a_second_run_with_nothing_changed_makes_nothing_and_its_run_holds_figures_reports_and_parameters(world, run):
    run.unchanged()
    released, stages = run()
    assert stages == list(world.flow.always)
    assert released["new"] == ()
    assert released["versions"] == versions(world.system)
    files, (name, value), metrics = world.flow.logged
    client = open_registry(settings.read(), world.system).connect()
    assert set(files) <= {file.path for file in client.list_artifacts(released["run"])}
    logged = client.get_run(released["run"])
    assert logged.info.status == "FINISHED"
    assert logged.data.params[name] == value
    assert set(metrics) <= set(logged.data.metrics)
    assert [item.dataset.name for item in logged.inputs.dataset_inputs] == [world.flow.task.rsplit("-", 1)[1]]
    gate = json.loads(Path(client.download_artifacts(released["run"], "gate.json")).read_text())
    assert released["reason"] in (gate.get("reason"), gate.get("things", {}).get("reason"))


def test_an_artifact_that_has_gone_is_made_again_and_nothing_else(world, run):
    run.unchanged()
    folder, bar = world.flow.lost
    (lost,) = (FolderStore(settings.read().store).root / folder).iterdir()
    before = versions(world.system)
    shutil.rmtree(lost)
    released, stages = run()
    assert stages == [bar, *world.flow.always]
    assert released["versions"] == before


def test_a_changed_setting_makes_again_only_what_depends_on_it(world, run):
    for changes, made, new in world.flow.changed:
        run.unchanged()
        released, stages = run(**changes)
        assert stages == [*made, *world.flow.always], changes
        assert set(released["new"]) <= set(new) and bool(released["new"]) == bool(new), changes


def test_what_was_made_anew_is_measured_beside_the_champion(world, run):
    longer = {
        "tokens": lambda was: {
            "task": {**was["task"], "head_steps": 6},
            "foundation": {**was["foundation"], "images": 64},
        },
        "bins": lambda was: {"embedded": {**was["embedded"], "classifier": {"epochs": 3, "max_length": 32}}},
        "cascade": lambda was: {
            "levels": [{**each, "classifier": {**each["classifier"], "epochs": 3}} for each in was["levels"]]
        },
        "packing": lambda was: {"precision": "bfloat16"},
    }
    run.unchanged()
    released, _ = run(**longer[world.system](world.setting()))
    assert "; measured in turns now, it takes " in released["reason"]


def test_any_mlflow_client_can_load_the_champion_and_ask_it(world):
    asked, columns = world.flow.asked
    model = next(name for name in (world.flow.task, *world.flow.models) if world.system != "bins" or "encoder" in name)
    assert tuple(map(str, answer(model, asked).columns)) == columns


def test_measured_on_another_device_the_champion_is_published_anew_and_everything_else_stays(world, run, monkeypatch):
    run.unchanged()
    before = versions(world.system)
    quick = partial(TokensFlowConfig, latency=read(overrides=tokens_setting()).latency)
    monkeypatch.setattr("pliant.flows.tokens.reprofile.TokensFlowConfig", quick)
    systems.system(world.system).part("flows", "reprofile").reprofile("cpu", 2, silent, other_device=True)
    run.standing = None
    after = versions(world.system)
    model = "pliant-tokens-profile" if world.system == "tokens" else world.flow.task
    assert after[model] > before[model]
    assert {name: number for name, number in after.items() if name != model} == {
        name: number for name, number in before.items() if name != model
    }
    released, _ = run(other_device=False)
    assert not released["promoted"]
    assert "nothing has changed" in released["reason"] or "the champion on cpu" in released["reason"]
    assert versions(world.system) == after


def test_a_mistake_comes_out_of_the_flow_as_the_sentence_that_it_is(world):
    cases = [(None, *case) for case in world.flow.wrong]
    cases.append(("absent.toml", {}, "config is absent.toml, but must be a readable TOML file"))
    for config, changes, sentence in cases:
        with pytest.raises(InputError) as error:
            run_connected(world.system, config, world.setting(**changes), new_task=True)
        assert str(error.value).startswith(sentence)
