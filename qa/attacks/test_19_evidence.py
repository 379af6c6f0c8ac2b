"""One tenant's evidence: its false labels start nothing, and a label that was acknowledged survives a kill of the service.

What one tenant does to trials is in tests/pliant/rollout/test_attackers.py and in
tests/serving/loop/test_faults_of_clients.py, since a trial's chance is known only from many trials.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pliant.outcomes.files import folder_of, read_labels
from qa.attacks.test_07_outcomes import ASK
from qa.attacks.test_13_journals import kill, until_killed
from qa.targets import Targets, make_keys, send
from tests.fixtures.cascade.published import MlflowPublisher, publish_tiny, settings_for

ROUNDS, CLIENTS, SECONDS = 3, 4, 4.0
FALSE = 60


@pytest.fixture
def ground(tmp_path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    publish_tiny(MlflowPublisher(tmp_path))
    roles = {"acme": "use", "beta": "use", "evil": "use", "root": "admin"}
    yield tmp_path, make_keys(tmp_path / "keys.json", roles)


def answered(url: str, key: str) -> str:
    """Return the id of a new answer."""
    return send(url, key, "POST", "/v1/predict", json.loads(ASK))[1]["answers"][0]["id"]


def broken_promises(folder: Path) -> int:
    """Return the events that start a run."""
    path = folder / "events.jsonl"
    return path.read_text().count("pliant.promise-broken") if path.is_file() else 0


def test_a_strangers_false_labels_start_nothing_and_two_tenants_that_agree_do(ground):
    folder, keys = ground
    targets = Targets("19 a stranger's labels")
    with until_killed(settings_for(folder, keys_file=folder / "keys.json"), folder) as service:
        for _ in range(FALSE):
            id = answered(service.url, keys["evil"])
            assert send(service.url, keys["evil"], "POST", "/v1/outcomes", {"id": id, "label": "red"})[0] == 200
        alarms = send(service.url, keys["root"], "GET", "/v1/outcomes/alarms")[1]["alarms"]
        assert {tuple(alarm["labels_by_tenant"]) for alarm in alarms} == {("evil",)}, "shown, with whose labels"
        time.sleep(3.0)
        targets.at_most("events that start a run", broken_promises(folder), 0)
        for _ in range(FALSE):
            id = answered(service.url, keys["acme"])
            send(service.url, keys["acme"], "POST", "/v1/outcomes", {"id": id, "label": "red"})
        time.sleep(3.0)
        targets.at_least("events once a second tenant reports the same", broken_promises(folder), 1)
    targets.check()


def test_no_label_that_was_acknowledged_is_lost_with_a_kill(ground):
    folder, keys = ground
    targets, acknowledged, sent = Targets("19 labels and a kill"), set[str](), [0]

    def report(url: str, end: threading.Event) -> None:
        while not end.is_set():
            try:
                id = answered(url, keys["acme"])
                sent[0] += 1
                if send(url, keys["acme"], "POST", "/v1/outcomes", {"id": id, "label": "red"})[0] == 200:
                    acknowledged.add(id)
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                return  # it is killed

    for _ in range(ROUNDS):
        with until_killed(settings_for(folder, keys_file=folder / "keys.json"), folder) as service:
            end = threading.Event()
            with ThreadPoolExecutor(CLIENTS) as pool:
                for _ in range(CLIENTS):
                    pool.submit(report, service.url, end)
                time.sleep(SECONDS)
                kill(service.process.pid)
                end.set()
    kept = {record.id for record in read_labels(folder_of(folder, "cascade"))}
    targets.at_least("labels acknowledged", len(acknowledged), 50)
    targets.at_most(f"labels acknowledged and lost, of {len(acknowledged)}", len(acknowledged - kept), 0)
    with until_killed(settings_for(folder, keys_file=folder / "keys.json"), folder) as service:
        figures = send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"]
        counted = sum(level["labels"] for each in figures for level in each["levels"])
        targets.at_least(
            "labels that the figures count after the kills, over those acknowledged", counted / len(acknowledged), 1
        )
    targets.check()
