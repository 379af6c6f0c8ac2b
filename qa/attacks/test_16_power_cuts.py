"""Power cuts at every write of a publisher, and a registry that is replaced while a service follows it."""

from __future__ import annotations

import contextlib
import json

from qa.targets import refresh, say, under_attack
from tests.fixtures.bins.published import settings_for
from tests.fixtures.half_publishes import Killed, Publisher, Steps, stepping
from tests.fixtures.live import running
from tests.fixtures.power_cuts import recorded

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())


def look(url: str) -> None:
    assert refresh(url)["outcome"] == "held"


def test_power_cuts_at_every_write_of_the_registry(tmp_path, monkeypatch):
    publisher, steps, broken, seed = Publisher(tmp_path), Steps(), 0, 1
    with recorded(monkeypatch) as disk:
        publisher.publish(0)
        with stepping(monkeypatch, tmp_path / "nothing", steps):
            publisher.publish(1)
        for kill in range(len(steps.names)):
            former, seed = publisher.served()["colours"], seed + 1
            with stepping(monkeypatch, tmp_path / "nothing", Steps(kill)), contextlib.suppress(Killed):
                publisher.publish(seed)
            disk.cut(tmp_path / "artifacts")
            try:
                assert publisher.served()["colours"] in (former, seed)
            except Exception as error:
                broken += 1
                say(f"cut at {steps.names[kill]}: {error}")
    say(f"TARGET 16 registries that cannot be served after {len(steps.names)} power cuts: {broken} (at most 0)")
    assert not broken


def test_a_registry_that_is_replaced_while_a_service_follows_it(tmp_path):
    publisher = Publisher(tmp_path / "first")
    publisher.publish(0)
    other = Publisher(tmp_path / "second")
    other.publish(1)
    with running(settings_for(tmp_path / "first"), tmp_path) as service:
        (tmp_path / "second" / "mlflow.db").replace(tmp_path / "first" / "mlflow.db")
        answer = refresh(service.url)
        assert (answer["outcome"], "another registry" in answer["message"]) == ("held", True)
        under_attack(service, REQUEST, [look], "16 a replaced registry", rounds=3)
