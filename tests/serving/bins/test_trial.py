"""A challenger in MLflow is tried by a service, promoted there or taken back, and a rollback needs no new start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pliant.registry import mlflow_switch
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for

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
    short = {**copies, "trial_steps": "0.5,1", "trial_requests": 6, "trial_seconds": 0.0}
    usual = {"refresh_seconds": 0.2, "watch_seconds": 0.1, "watch_burn_in": 20, "standby_seconds": 60.0}
    return settings_for(folder, **{**usual, **short, **changes})


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


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
            async with asyncio.timeout(60):
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

        service.wait(scenario())
        status = service.call("GET", "/status").json()
    assert status["release"] == 1 and status["trial"] is None
    assert {row["stream"] for row in status["watch"]["streams"]} >= {f"class of {STREAM}", f"tokens of {STREAM}"}
    taken_back = registry.release("bins", 2)
    assert (taken_back.state, taken_back.reason) == ("taken back", "it was slow")
    assert mlflow_switch.aliases(registry, "bins") == {"champion": 1, "previous": 2}


def test_one_that_always_fails_is_taken_back_and_every_request_is_answered(place):
    registry = registry_of(place)
    with serving(registry, settings(place, trial_copies=0, trial_requests=60)) as service:
        trials = service.assembly.refresher.trials
        champion = service.devices[0]

        def broken(device):
            async def run(setting, payloads):
                raise RuntimeError("out of memory")

            if device is not champion:
                device.run = run

        service.on_new_device = broken

        async def scenario():
            await until(lambda: trials.to_dict() is not None)
            for number in range(200):
                await ask(service, number)
                if trials.to_dict() is None:
                    break
            await until(lambda: registry.release("bins", 2).state == "taken back")

        service.wait(scenario())
    assert registry.release("bins").number == 1
    assert "failed answers" in registry.release("bins", 2).reason
