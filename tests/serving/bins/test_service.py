"""The whole bins service over real HTTP: `bentoml serve`, device processes, a registry and compiled files."""

from __future__ import annotations

import json
import signal
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from pliant.errors import ArtifactError, DigestError
from pliant.protocol import replay
from pliant.serving.bins.assembly import compiled, make_scheduler
from pliant.serving.bins.catalog import load_catalog
from pliant.serving.journal import read
from pliant.serving.launch import launch
from pliant.serving.lifecycle.catalog import open_registry
from tests.fixtures.bins.published import (
    LONG,
    SHORT,
    TEXT,
    MlflowPublisher,
    publish_compiled,
    publish_tiny,
    settings_for,
)
from tests.fixtures.clients import PATIENCE, call, free_port, is_shed, wait_for
from tests.fixtures.http.oip import text_tensor
from tests.fixtures.live import ConcurrentCalls, end_in_flight, go_on, processes, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publisher = MlflowPublisher(folder)
    publish_compiled(publisher, folder / "home", "meanings")
    publish_tiny(publisher, "colours")
    return folder


@pytest.fixture(scope="module")
def settings(folder):
    told = {"workers": 2, "launch_limit": 5.0, "max_waiting": 64, "max_texts": 16, "refresh_seconds": 1.0}
    return settings_for(folder, journal=folder / "journal.jsonl", **told)


@pytest.fixture(scope="module")
def service(folder, settings):
    with running(settings, folder) as service:
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
    for path in ("/livez", "/readyz", "/healthz", "/health", "/docs", "/openapi.json", "/metrics", "/colours/health"):
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


def test_the_open_inference_protocol_is_at_the_root_too(service):
    with urllib.request.urlopen(service.url + "/v2/health/ready", timeout=PATIENCE) as response:
        assert (response.status, json.load(response)) == (200, {"ready": True})
    status, content = post(service, "/v2/models/meanings/infer", {"inputs": [text_tensor("text", TEXT)]})
    assert (status, content["outputs"][0]["shape"]) == (200, [1, 16])
    native = embed(service, TEXT)[1]
    np.testing.assert_allclose(np.reshape(content["outputs"][0]["data"], (1, 16)), native, atol=1e-5)
    assert set(post(service, "/v2/models/other/infer", {"inputs": [text_tensor("text", TEXT)]})[1]) == {"error"}


def test_a_hung_device_process_is_replaced_and_no_text_lost(service):
    victim = processes(service)[0]
    victim.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: embed(service, SHORT, LONG), 8)
    assert [status for status, _ in requests.answers()] == [200] * 8
    wait_for(lambda: not victim.is_running() and len(processes(service)) == 2)


def test_overload_is_refused_with_429_and_what_was_taken_is_answered(service):
    """Both devices are paused for a moment, so that the queue fills up."""
    stopped = processes(service)
    for device in stopped:
        device.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: embed(service, *[SHORT] * 16), 12)
    wait_for(lambda: 429 in [status for status, _ in requests.so_far()])
    go_on(stopped)
    answers = requests.answers()
    assert {status for status, _ in answers} == {200, 429}
    assert {told["error_type"] for status, told in answers if status == 429} == {"Overloaded"}
    assert embed(service, SHORT)[0] == 200


def test_a_new_champion_takes_over_while_clients_ask(folder, service):
    answers, stopped = [], threading.Event()

    def ask_on():
        while not stopped.wait(0.2):
            answers.append(embed(service, SHORT, LONG))

    threads = [threading.Thread(target=ask_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        publish_compiled(MlflowPublisher(folder), folder / "home", "meanings", seed=1)
        wait_for(lambda: status_of(service)["generation"] == 2 and status_of(service)["leaving"] == 0)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert {status for status, body in answers if not is_shed(status, body)} == {200}
    assert status_of(service)["streams"][1]["encoder"]["version"] == 2
    assert len(processes(service)) == 2


def test_the_live_journals_replay_to_themselves(folder, settings, service):
    """Each generation has a journal of its own, from its start. The second champion has the same shapes and profile."""
    wait_for(lambda: embed(service, TEXT)[0] == 200 and len(read(folder / "journal-2.jsonl")) > 1)
    catalog = load_catalog(open_registry(settings), "champion")
    for name in ("journal.jsonl", "journal-2.jsonl"):
        journal = read(folder / name)
        assert replay(make_scheduler(settings, catalog), journal) == journal


def test_sigterm_with_pending_texts_answers_them_all_and_exits_with_status_0(service):
    """The last test that shares the service. The device processes are paused, so that no request ends too early."""
    held = processes(service)
    for device in held:
        device.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: embed(service, TEXT), 10)
    wait_for(lambda: status_of(service)["pending"] == 10)
    assert [status for status, _ in end_in_flight(service, held, requests)] == [200] * 10


def test_altered_or_missing_native_code_is_refused_before_serving(folder, settings):
    """Runs after the service has stopped, whose files it changes."""
    served = load_catalog(open_registry(settings), "champion").tasks["meanings"]
    file = compiled(settings, served) / next(iter(served.bins.files))
    content = file.read_bytes()
    for change, error in ((lambda: file.write_bytes(content + b"0"), DigestError), (file.unlink, ArtifactError)):
        change()
        with pytest.raises(error):
            launch(settings, folder, free_port())
    file.write_bytes(content)
