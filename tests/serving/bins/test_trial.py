"""A challenger in MLflow is tried by a service and promoted there; one that nobody signed is taken back untried."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.flows import settings as flow_settings
from pliant.flows.release import open_registry
from pliant.registry import mlflow_switch
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.signing.versions import announce, sign_version, versions_in_use
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.fakes import until
from tests.fixtures.signing import new_signer

STREAM = "colours"


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with a registry of one release of bins, and a second version of the same models."""
    publisher = MlflowPublisher(tmp_path)
    publish_tiny(publisher, STREAM)
    registry = registry_of(tmp_path)
    first = registry.aliases("pliant-bins-")
    registry.commit(first)
    second = {name: publish_again(registry, tmp_path, name) for name in first}
    registry.propose(second, None, mlflow_switch.WAITING, "the gate let it pass", "")
    return tmp_path


def registry_of(folder: Path) -> MlflowRegistry:
    settings = settings_for(folder)
    return MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))


def publish_again(registry: MlflowRegistry, folder: Path, name: str) -> int:
    """Register the champion's artifact once more, and return its version."""
    client, first = registry.connect(), registry.connect().get_model_version(name, "1")
    return int(client.create_model_version(name, first.source, run_id=first.run_id, tags=first.tags).version)


def settings(folder: Path, **changes):
    copies = {"trial_copied": 1.0, "trial_copies": 6, "trial_copy_time": 1.0}
    short = {**copies, "trial_steps": "0.5,1", "trial_requests": 6, "trial_seconds": 2.0}
    usual = {"refresh_seconds": 0.2, "watch_seconds": 0.1, "watch_burn_in": 20, "standby_seconds": 60.0}
    return settings_for(folder, **{**usual, **short, **changes})


async def ask(service, number: int) -> None:
    headers = {"x_pliant_key": f"client {number}"}
    answer = await service.posting(f"/{STREAM}/predict", {"inputs": f"a red sign {number}"}, **headers)
    assert answer.status_code == 200, answer.text


def test_a_good_challenger_becomes_champion_by_itself_and_a_rollback_takes_the_former_one_that_is_still_loaded(place):
    registry = registry_of(place)
    with serving(registry, settings(place)) as service:
        trials, generations = service.assembly.refresher.trials, service.assembly.generations

        async def scenario():
            await until(lambda: trials.to_dict() is not None)
            assert trials.to_dict()["stage"] == "shadow"
            async with asyncio.timeout(240):
                number = 0
                while generations.present.catalog.pointers[f"pliant-bins-{STREAM}"] == 1:
                    await ask(service, number := number + 1)
            assert registry.release("bins").number == 2
            started = len(service.devices)
            mlflow_switch.switch(registry, "bins", 1, "it was slow", mlflow_switch.TAKEN_BACK)
            await until(lambda: generations.present.catalog.pointers[f"pliant-bins-{STREAM}"] == 1)
            assert len(service.devices) == started, "the former release was still loaded"
            while not service.assembly.refresher.watcher.to_dict()["streams"]:  # what is usual is learnt anew
                await ask(service, 1)
                await asyncio.sleep(0.02)
            await until(lambda: trials.to_dict() is None)

        service.wait(scenario())
        status = service.call("GET", "/status").json()
    assert status["release"] == 1 and status["trial"] is None
    assert {row["stream"] for row in status["watch"]["streams"]} >= {f"class of {STREAM}", f"tokens of {STREAM}"}
    taken_back = registry.release("bins", 2)
    assert (taken_back.state, taken_back.reason) == ("taken back", "it was slow")
    assert mlflow_switch.aliases(registry, "bins") == {"champion": 1, "previous": 2}


MODELS = ("pliant-bins-colours", "pliant-bins-encoder-colours")


@pytest.fixture
def signed(tmp_path):
    """A registry as a flow with the key opens it: one signed release, and an unsigned second version of its models."""
    new_signer(tmp_path / "keys")
    usual = settings_for(tmp_path)
    keys = tmp_path / "keys" / "release.pem", tmp_path / "keys" / "release.pub.pem"
    project = flow_settings.Settings(tmp_path / "home", usual.registry_uri, Path(usual.artifact_root), *keys)
    publisher = MlflowPublisher(tmp_path)
    publisher._registry = registry = open_registry(project, "bins")
    publish_tiny(publisher, "colours")
    registry.commit(registry.aliases("pliant-bins-"))
    publisher._registry = without_keys(registry, project)
    publish_tiny(publisher, "colours", seed=1)  # and so the next release, by somebody without the key
    return registry


def without_keys(registry, project):
    return open_registry(replace(project, signing_key=None, trusted_keys=None), "bins")


def sign(registry) -> None:
    for published in versions_in_use(registry, "bins"):
        sign_version(registry, published, registry.signing.signer)
    announce(registry, "bins")


@pytest.mark.slow
def test_a_challenger_that_is_not_signed_is_not_tried_and_the_registry_says_why(signed, tmp_path):
    unsigned = replace(signed, signing=replace(signed.signing, trust=None))
    sign(signed)
    for number in (1, 2):
        unsigned.commit(dict.fromkeys(MODELS, number))
    client = signed.connect()
    for name in MODELS:
        client.delete_model_version_tag(name, "1", f"pliant.signature.{signed.signing.signer.id}")
    challenger = unsigned.propose(dict.fromkeys(MODELS, 1), None, mlflow_switch.WAITING, "the gate let it pass", "")
    with serving(None, settings(tmp_path, trusted_keys=tmp_path / "keys" / "release.pub.pem")) as service:
        service.wait(until(lambda: unsigned.release("bins", challenger.number).state == "taken back", 0.05))
        assert service.assembly.refresher.trials.trial is None
        assert service.assembly.refresher.release == challenger.former
    assert "is refused: it is not signed" in unsigned.release("bins", challenger.number).reason
