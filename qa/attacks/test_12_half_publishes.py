"""Publishers that die at every step, and that race, while a service follows the registry that they write to."""

from __future__ import annotations

import contextlib
import json
import random
from functools import partial
from pathlib import Path

import pytest

from pliant.errors import RegistryError
from qa.targets import refresh, say, under_attack
from tests.fixtures.bins.published import settings_for
from tests.fixtures.half_publishes import Killed, Publisher, Steps, stepping
from tests.fixtures.light_mlflow import lighten
from tests.fixtures.live import running

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())

OUTCOMES = ("unchanged", "changed", "held")


def publish_half(url: str, folder: str) -> None:
    """Publish something new, die at any step of it, and let the service look."""
    seed, monkeypatch = random.randrange(1000, 10_000_000), pytest.MonkeyPatch()
    with contextlib.suppress(Killed, RegistryError), monkeypatch.context() as patched:
        lighten(patched)
        with stepping(patched, Path(folder) / "artifacts", Steps(random.randrange(60))):
            Publisher(Path(folder)).publish(seed)
    assert refresh(url)["outcome"] in OUTCOMES


def test_a_service_that_follows_publishers_which_die(tmp_path):
    publisher = Publisher(tmp_path)
    publisher.publish(0)
    with running(settings_for(tmp_path), tmp_path) as service:
        # A new version starts in a process beside the present one, which takes processor time from it.
        under_attack(service, REQUEST, [partial(publish_half, folder=str(tmp_path))], "12 half publishes", p99=1.5)
        assert refresh(service.url)["outcome"] in OUTCOMES
    assert publisher.served()
    assert publisher.registry.release("bins").number > 1  # some of them got as far as that


@pytest.mark.parametrize("whole", [False, True], ids=["every step", "a sample, with MLflow's own files"])
def test_a_publisher_killed_where_it_writes_to_the_registry_or_a_file(tmp_path, monkeypatch, whole):
    if not whole:
        lighten(monkeypatch)
    publisher, steps, broken, seed = Publisher(tmp_path), Steps(), 0, 1
    publisher.publish(0)
    with stepping(monkeypatch, tmp_path, steps):
        publisher.publish(1)
    kills = range(0, len(steps.names), max(1, len(steps.names) // 30) if whole else 1)
    for kill in kills:
        former, seed = publisher.served()["colours"], seed + 1
        with stepping(monkeypatch, tmp_path, Steps(kill)), contextlib.suppress(Killed):
            publisher.publish(seed)
        try:
            assert publisher.served()["colours"] in (former, seed)
        except Exception as error:
            broken += 1
            say(f"killed at {steps.names[kill]}: {error}")
    say(f"TARGET 12 registries that cannot be served after {len(kills)} kills: {broken} (at most 0)")
    assert not broken
