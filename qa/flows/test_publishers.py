"""Publishers that are killed, at any write, and that race; and what a tracking server tells services of a release."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pliant.errors import RegistryError
from pliant.flows import servers, settings
from pliant.registry import codec
from pliant.registry import mlflow_switch as switching
from pliant.registry.mlflow_store import CHALLENGER, CHAMPION, PREVIOUS, MlflowRegistry
from pliant.registry.names import release
from pliant.registry.releases import RegistryRelease
from pliant.registry.webhooks import moves_release, register, verified
from qa.prefect_server import until
from tests.fixtures.half_publishes import ENCODER, PLAN, Publisher, Steps, stepping
from tests.fixtures.killed import killed
from tests.fixtures.light_mlflow import lighten
from tests.fixtures.listener import listening


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    lighten(monkeypatch)
    return Publisher(tmp_path)


def test_the_single_models_aliases_move_the_parts_first_and_what_names_them_last(publisher, monkeypatch):
    publisher.publish(0)
    steps = Steps()
    with stepping(monkeypatch, publisher.folder / "artifacts", steps):
        publisher.publish(1)
    aliases = [tuple(name.split()[1:]) for name in steps.names if name.startswith("set_registered_model_alias")]
    release = "pliant-release-bins"
    assert aliases == [
        (ENCODER, "challenger"),
        (PLAN, "challenger"),
        (release, PREVIOUS),
        (release, CHAMPION),
        (ENCODER, PREVIOUS),
        (ENCODER, CHAMPION),
        (PLAN, PREVIOUS),
        (PLAN, CHAMPION),
    ]


def test_publishers_in_a_race_wait_for_each_other_and_lose_nothing(publisher):
    streams = ["colours", "meanings", "sounds", "tastes"]
    publisher.publish(0)
    for stream in streams:
        Publisher(publisher.folder, stream).drafts(1)
    with ThreadPoolExecutor(len(streams)) as pool:
        list(pool.map(lambda stream: Publisher(publisher.folder, stream).publish(1), streams))
    assert publisher.served() == dict.fromkeys(streams, 1)


CANARY = ("PLIANT_ROLLOUT", "canary")
SEEN = ("create_model_version", "set_registered_model_alias", "set_terminated")
"""Writes that others see; before each there are some that nobody does."""


def end(publisher: Publisher, seed: int) -> dict[str, Any]:
    """Return what a proposal leaves, by digests: numbers differ with what was published before."""
    registry = publisher.registry
    champion, challenger = registry.release("bins"), registry.release("bins", CHALLENGER)
    digests = dict(zip((ENCODER, PLAN), map(codec.digest, publisher.drafts(seed)), strict=True))
    own = {name: registry.aliased(name, CHALLENGER) for name in digests}
    alike = [each for each in latest(registry) if dict(each.digests) == digests]
    return {
        "served": publisher.served(),
        "champion": (champion.number, champion.state),
        "challenger": dict(challenger.digests) == digests,
        "its own aliases": {name: each.version for name, each in own.items()} == dict(challenger.versions),
        "state": (challenger.state, challenger.reason, challenger.former, bool(challenger.since)),
        "releases": len(alike),
        "aliases": sorted(switching.aliases(registry, "bins")),
    }


def latest(registry: MlflowRegistry) -> list[RegistryRelease]:
    """Return the releases that were written last, whether an alias names them or not."""
    return [registry.release("bins", number) for number in registry.numbers("pliant-release-bins")[-3:]]


def whole(publisher: Publisher) -> None:
    """Every new release names versions that are there, with the digests that it names; a challenger is one of them."""
    registry = publisher.registry
    for newest in latest(registry)[-1:]:
        assert newest.versions, f"{newest.name} is half written"
        for name, number in newest.versions.items():
            assert registry.version(name, number).digest == newest.digests[name]
            assert registry.intact(registry.version(name, number))


def test_a_flow_killed_at_any_write_of_a_proposal_ends_the_same_and_publishes_nothing_half(
    publisher, tmp_path, monkeypatch
):
    steps = Steps()
    publisher.publish(0)
    monkeypatch.setenv(*CANARY)
    with stepping(monkeypatch, tmp_path / "nothing", steps):
        publisher.publish(1)
    wanted = end(publisher, 1)
    assert wanted["served"] == {"colours": 0} and wanted["challenger"] and wanted["releases"] == 1
    assert wanted["state"][0] == "waiting"
    kills = [at for at, name in enumerate(steps.names) if name.startswith(SEEN)]
    assert len(kills) == 7, steps.names
    for seed, kill in enumerate(kills, start=2):
        before = publisher.registry.release("bins", CHALLENGER)
        assert killed(tmp_path, seed, kill, **dict([CANARY])), "by the system, in the midst of it"
        assert publisher.served() == {"colours": 0}, "services still see the champion"
        whole(publisher)
        challenger = publisher.registry.release("bins", CHALLENGER)
        assert challenger == before or end(publisher, seed)["challenger"], "the former one, or all of the new one"
        publisher.publish(seed)
        assert end(publisher, seed) == wanted, f"killed before {steps.names[kill]}"


SECRET = "a secret of the service"


def test_a_real_server_tells_a_registered_service_of_a_moved_release(tmp_path, monkeypatch):
    for name, value in {
        "PLIANT_HOME": str(tmp_path / "home"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "1",
    }.items():
        monkeypatch.setenv(name, value)
    tracking = servers.mlflow_server(settings.read(), servers.free_port())
    with tracking as address, listening(lambda _message: (202, b"")) as service:
        registry, hook = MlflowRegistry(address, "pliant-tokens", tmp_path / "artifacts"), f"{service.url}/v1/registry"
        client, name = registry.connect(create=True), release("tokens")
        first = register(registry, "tokens", hook, "a secret of before")
        assert register(registry, "tokens", hook, SECRET) == first  # the same, with another secret
        assert register(registry, "bins", hook, SECRET) != first
        assert len(client.list_webhooks()) == 2
        client.create_registered_model(name)
        client.create_model_version(name, "s3://nowhere/model")
        client.set_registered_model_alias(name, "champion", "1")
        (message,) = until(lambda: service.messages, 60.0)
        body, sent = message.body, message.headers
        assert json.loads(body)["data"] == {"name": name, "alias": "champion", "version": "1"}
        assert verified(body, sent, SECRET, time.time())
        assert not verified(body, sent, "a secret of before", time.time())
        assert moves_release(body, "tokens") and not moves_release(body, "bins")
        with pytest.raises(RegistryError, match=r"the webhook could not be registered at http://127.0.0.1.*scheme"):
            register(registry, "tokens", "ftp://host/hook", SECRET)
