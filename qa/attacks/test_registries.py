"""Registries that fail, are half written, lose their power or are replaced, while a service follows them."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest

from pliant.errors import RegistryError
from pliant.flows.servers import free_port, mlflow_server
from pliant.flows.settings import Settings
from qa.attacks.attackers import under_attack
from qa.targets import exchange, refresh, say
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.half_publishes import Killed, Publisher, Steps, stepping
from tests.fixtures.light_mlflow import lighten
from tests.fixtures.live import running
from tests.fixtures.power_cuts import recorded
from tests.fixtures.secret_registries import SECRETS, WAYS, Proxy

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())
OUTCOMES = ("unchanged", "changed", "held")


def poll(url: str) -> None:
    """Ask for a poll of the registry, for the status, and for a page that is not there."""
    for method, path, body in (("POST", "/refresh", b"{}"), ("GET", "/status", None), ("GET", "/nothing", None)):
        try:
            answer = exchange(url, method, path, body, timeout=30.0)[2].decode(errors="replace")
        except (OSError, HTTPException) as error:
            answer = str(error)
        assert "content-type" not in answer, "the service did not look at its registry"
        assert not any(secret in answer for secret in SECRETS), f"{path} shows a secret"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "postgres"])
def test_03_a_failing_registry_with_secrets_in_its_address(way, tmp_path, monkeypatch, targets):
    """While everybody asks about it, others are served, and no secret is shown."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    publish_tiny(MlflowPublisher(tmp_path), "colours")
    direct = settings_for(tmp_path)
    project = Settings(tmp_path / "home", direct.registry_uri, Path(direct.artifact_root))
    with mlflow_server(project, free_port()) as upstream:
        proxy = Proxy(upstream)
        settings = settings_for(tmp_path, registry_uri=proxy.address, refresh_seconds=1.0)
        with running(settings, tmp_path) as service:
            proxy.fail(way)
            under_attack(targets, service, REQUEST, [poll])
            poll(service.url)
        if way != "refuses":
            proxy.close()
    text = (tmp_path / "serve.log").read_text(errors="replace")
    shown = [secret for secret in SECRETS if secret in text]
    targets.at_most("secrets in the log", len(shown), 0)
    assert "refresh: failed" in text


def publish_half(url: str, folder: str) -> None:
    """Publish something new, die at any step of it, and let the service look."""
    seed, monkeypatch = random.randrange(1000, 10_000_000), pytest.MonkeyPatch()
    with suppress(Killed, RegistryError), monkeypatch.context() as patched:
        lighten(patched)
        with stepping(patched, Path(folder) / "artifacts", Steps(random.randrange(60))):
            Publisher(Path(folder)).publish(seed)
    assert refresh(url)["outcome"] in OUTCOMES


def test_12_a_service_that_follows_publishers_which_die(tmp_path, targets):
    publisher = Publisher(tmp_path)
    publisher.publish(0)
    with running(settings_for(tmp_path), tmp_path) as service:
        # A new version starts in a process beside the present one, which takes processor time from it.
        under_attack(targets, service, REQUEST, [partial(publish_half, folder=str(tmp_path))])
        assert refresh(service.url)["outcome"] in OUTCOMES
    assert publisher.served()
    assert publisher.registry.release("bins").number > 1  # some of them got as far as that


def broken(publisher: Publisher, monkeypatch, watched: Path, sample: bool, cut=lambda: None) -> tuple[int, int]:
    """Return how often a publisher was killed, at every step or at 30, and how often nothing could be served then.

    `watched`: the folder whose files are steps, too; `cut` is called after each kill.
    """
    steps, count, seed = Steps(), 0, 1
    publisher.publish(0)
    with stepping(monkeypatch, watched, steps):
        publisher.publish(1)
    kills = range(0, len(steps.names), max(1, len(steps.names) // 30) if sample else 1)
    for kill in kills:
        former, seed = publisher.served()["colours"], seed + 1
        with stepping(monkeypatch, watched, Steps(kill)), suppress(Killed):
            publisher.publish(seed)
        cut()
        try:
            assert publisher.served()["colours"] in (former, seed)
        except Exception as error:
            count += 1
            say(f"killed at {steps.names[kill]}: {error}")
    return len(kills), count


@pytest.mark.parametrize("whole", [False, True], ids=["every step", "a sample, with MLflow's own files"])
def test_12_a_publisher_killed_where_it_writes_to_the_registry_or_a_file(tmp_path, monkeypatch, whole, targets):
    if not whole:
        lighten(monkeypatch)
    kills, count = broken(Publisher(tmp_path), monkeypatch, tmp_path, sample=whole)
    targets.at_most(f"registries that cannot be served after {kills} kills", count, 0)


def test_16_power_cuts_at_every_write_of_the_registry(tmp_path, monkeypatch, targets):
    with recorded(monkeypatch) as disk:
        publisher, cut = Publisher(tmp_path), partial(disk.cut, tmp_path / "artifacts")
        kills, count = broken(publisher, monkeypatch, tmp_path / "nothing", sample=False, cut=cut)
    targets.at_most(f"registries that cannot be served after {kills} power cuts", count, 0)


def look(url: str) -> None:
    assert refresh(url)["outcome"] == "held"


def test_16_a_registry_that_is_replaced_while_a_service_follows_it(tmp_path, targets):
    publisher, other = Publisher(tmp_path / "first"), Publisher(tmp_path / "second")
    publisher.publish(0)
    other.publish(1)
    with running(settings_for(tmp_path / "first"), tmp_path) as service:
        (tmp_path / "second" / "mlflow.db").replace(tmp_path / "first" / "mlflow.db")
        answer = refresh(service.url)
        assert (answer["outcome"], "another registry" in answer["message"]) == ("held", True)
        under_attack(targets, service, REQUEST, [look], rounds=3)
