"""The whole bins service over real HTTP: `bentoml serve`, device processes, a registry and compiled files."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request

import pytest

from tests.fixtures.bins.published import (
    LONG,
    SHORT,
    TEXT,
    MlflowPublisher,
    publish_compiled,
    publish_tiny,
    settings_for,
)
from tests.fixtures.clients import PATIENCE, call, wait_for
from tests.fixtures.live import ConcurrentCalls, processes, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publisher = MlflowPublisher(folder)
    publish_compiled(publisher, folder / "home", "meanings")
    publish_tiny(publisher, "colours")
    return folder


@pytest.fixture(scope="module")
def service(folder):
    with running(settings_for(folder, workers=2, launch_limit=5.0), folder) as service:
        yield service


def post(service, path: str, value: object):
    return call(service, "POST", path, json.dumps(value).encode())


def embed(service, *texts: str, **told):
    return post(service, "/meanings/embed", {"inputs": texts, **told})


def status_of(service) -> dict:
    return call(service, "GET", "/status")[1]


def test_both_apis_are_at_the_root_beside_what_bentoml_has_there(service):
    assert post(service, "/embed", {"inputs": TEXT})[0] == 200
    assert post(service, "/predict", {"inputs": TEXT})[0] == 200
    assert post(service, "/v1/embeddings", {"input": TEXT, "model": "meanings"})[0] == 200
    assert [one["id"] for one in call(service, "GET", "/v1/models")[1]["data"]] == ["colours", "meanings"]
    for path in (
        "/",
        "/livez",
        "/readyz",
        "/healthz",
        "/health",
        "/docs",
        "/openapi.json",
        "/metrics",
        "/colours/health",
    ):
        with urllib.request.urlopen(service.url + path, timeout=PATIENCE) as response:
            assert response.status == 200, path
            content = response.read()
        if path == "/metrics":
            assert b'pliant_launches_total{bin="meanings/' in content
    told = status_of(service)
    assert (told["ready"], told["workers"], [one["name"] for one in told["streams"]]) == (
        True,
        2,
        ["colours", "meanings"],
    )


def test_a_hung_device_process_is_replaced_and_no_text_lost(service):
    victim = processes(service)[0]
    victim.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: embed(service, SHORT, LONG), 8)
    assert [status for status, _ in requests.answers()] == [200] * 8
    wait_for(lambda: not victim.is_running() and len(processes(service)) == 2)
