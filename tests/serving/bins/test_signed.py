"""From a key to a served version through MLflow: what nobody signed is neither served nor tried, until it is signed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.flows import settings as flow_settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_switch import WAITING
from pliant.registry.signing.versions import announce, sign_version, versions_in_use
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.signing import new_signer

MODELS = ("pliant-bins-colours", "pliant-bins-encoder-colours")

pytestmark = pytest.mark.slow


@pytest.fixture
def registry(tmp_path):
    """A registry as a flow with the key opens it: one signed release, and an unsigned second version of its models."""
    new_signer(tmp_path / "keys")
    settings = settings_for(tmp_path)
    project = flow_settings.Settings(
        tmp_path / "home",
        settings.registry_uri,
        Path(settings.artifact_root),
        tmp_path / "keys" / "release.pem",
        tmp_path / "keys" / "release.pub.pem",
    )
    publisher = MlflowPublisher(tmp_path)
    publisher._registry = registry = open_registry(project, "bins")
    publish_tiny(publisher, "colours")
    registry.commit(registry.aliases("pliant-bins-"))
    publisher._registry = without_keys(registry, project)
    publish_tiny(publisher, "colours", seed=1)  # and so the next release, by somebody without the key
    return registry


def without_keys(registry, project):
    return open_registry(replace(project, signing_key=None, trusted_keys=None), "bins")


def settings(tmp_path, **changes):
    trusted = tmp_path / "keys" / "release.pub.pem"
    usual = {"refresh_seconds": 0.2, "trusted_keys": trusted, "standby_seconds": 0.0}
    return settings_for(tmp_path, **{**usual, **changes})


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def sign(registry) -> None:
    for published in versions_in_use(registry, "bins"):
        sign_version(registry, published, registry.signing.signer)
    announce(registry, "bins")


def test_a_champion_is_served_as_soon_as_it_is_signed_and_not_before_and_nobody_needs_to_ask(registry, tmp_path):
    with serving(None, settings(tmp_path)) as service:
        refresher = service.assembly.refresher
        last = registry.release("bins").number
        assert refresher.release < last, "it started with the last release that is signed whole"
        service.wait(until(lambda: "is not signed" in refresher.poller.last.message))
        assert refresher.poller.last.outcome == "held"
        first = service.post("/predict", {"inputs": "a dog"})
        sign(registry)
        service.wait(until(lambda: refresher.release == last))
        assert refresher.generations.present.catalog.pointers == dict.fromkeys(MODELS, 2)
        assert (first.status_code, service.post("/predict", {"inputs": "a dog"}).status_code) == (200, 200)


def test_a_challenger_that_is_not_signed_is_not_tried_and_the_registry_says_why(registry, tmp_path):
    unsigned = replace(registry, signing=replace(registry.signing, trust=None))
    sign(registry)
    for number in (1, 2):
        unsigned.commit(dict.fromkeys(MODELS, number))
    client = registry.connect()
    for name in MODELS:
        client.delete_model_version_tag(name, "1", f"pliant.signature.{registry.signing.signer.id}")
    challenger = unsigned.propose(dict.fromkeys(MODELS, 1), None, WAITING, "the gate let it pass", "")
    with serving(None, settings(tmp_path)) as service:
        service.wait(until(lambda: unsigned.release("bins", challenger.number).state == "taken back"))
        assert service.assembly.refresher.trials.trial is None
        assert service.assembly.refresher.release == challenger.former
    assert "is refused: it is not signed" in unsigned.release("bins", challenger.number).reason
