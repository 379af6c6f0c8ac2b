"""The whole cascade service over real HTTP: `bentoml serve`, device processes, and a registry of a tiny cascade."""

from __future__ import annotations

import json
import signal
import threading
import urllib.request

import pytest

from pliant.errors import ArtifactError, DeviceError, RegistryError
from pliant.protocol import replay
from pliant.registry.names import cascade_level
from pliant.serving.cascade.assembly import make_knowledge, make_scheduler
from pliant.serving.cascade.catalog import load_catalog
from pliant.serving.journal import read
from pliant.serving.launch import launch
from pliant.serving.lifecycle.catalog import open_registry
from tests.fixtures.cascade.published import (
    SURE,
    UNSURE,
    MlflowPublisher,
    publish_tiny,
    settings_for,
    tiny_classifier,
)
from tests.fixtures.clients import PATIENCE, call, free_port, is_shed, wait_for
from tests.fixtures.http.oip import outputs_in, text_tensor
from tests.fixtures.live import ConcurrentCalls, end_in_flight, processes, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_tiny(MlflowPublisher(folder))
    return folder


@pytest.fixture(scope="module")
def settings(folder):
    told = {"workers": 2, "placement": "own", "launch_limit": 5.0, "refresh_seconds": 1.0}
    return settings_for(folder, journal=folder / "journal.jsonl", **told)


@pytest.fixture(scope="module")
def service(folder, settings):
    with running(settings, folder) as service:
        yield service


def ask(service, *texts: str, **told):
    body = {"task": "colours", "texts": texts or (UNSURE,), "deadline": 30.0, **told}
    return call(service, "POST", "/v1/predict", json.dumps(body).encode())


def status_of(service) -> dict:
    return call(service, "GET", "/v1/status")[1]


def test_texts_are_answered_by_the_level_that_is_sure(service):
    status, answer = ask(service, SURE, UNSURE)
    assert status == 200, answer
    assert [one["level"] for one in answer["answers"]] == ["small", "large"]
    assert [one["label"] for one in answer["answers"]] == ["blue", "green"]
    told = status_of(service)
    assert (told["ready"], told["workers"], told["placement"]) == (True, 2, "own")
    assert call(service, "GET", "/v1/tasks")[1]["tasks"][0]["classes"] == ["red", "green", "blue"]


def test_the_open_inference_protocol_is_at_the_root_beside_what_bentoml_has_there(service):
    body = json.dumps({"inputs": [text_tensor("text", SURE, UNSURE)]}).encode()
    status, content = call(service, "POST", "/v2/models/colours/infer", body)
    assert status == 200, content
    assert outputs_in(content)["level"] == ["small", "large"]
    for path in ("/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/docs", "/v1/label", "/v2"):
        with urllib.request.urlopen(service.url + path, timeout=PATIENCE) as response:
            assert response.status == 200, path
    assert call(service, "POST", "/v2/models/other/infer", body)[0] == 404
    assert set(call(service, "GET", "/v2/nothing")[1]) == {"error"}


def test_a_killed_device_process_loses_no_text_and_comes_back(service):
    """Pause the device process first, so that it dies during a launch."""
    victim = processes(service)[1]
    victim.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: ask(service, UNSURE, SURE), 8)
    wait_for(lambda: status_of(service)["pending"] >= 8)
    victim.kill()
    answers = requests.answers()
    assert [status for status, _ in answers] == [200] * 8, answers
    for _, answer in answers:
        unsure, sure = answer["answers"]
        assert unsure["level"] == "large" or unsure["reason"] in ("late", "failed")
        assert sure["level"] == "small"
    wait_for(lambda: ask(service)[1]["answers"][0]["level"] == "large")


def test_a_hung_device_process_leaves_the_small_models_answers(service):
    victim = processes(service)[1]
    victim.send_signal(signal.SIGSTOP)
    status, answer = ask(service, UNSURE, deadline=3.0)
    assert status == 200, answer
    assert (answer["answers"][0]["level"], answer["answers"][0]["cut_short"]) == ("small", True)
    wait_for(lambda: not victim.is_running())
    wait_for(lambda: ask(service)[1]["answers"][0]["level"] == "large")


def test_a_new_champion_takes_over_while_clients_ask(folder, service):
    answers, stopped = [], threading.Event()

    def ask_on():
        while not stopped.wait(0.2):
            answers.append(ask(service, SURE, UNSURE))

    threads = [threading.Thread(target=ask_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        publish_tiny(MlflowPublisher(folder), seed=1)
        wait_for(lambda: status_of(service)["generation"] == 2 and status_of(service)["leaving"] == 0)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert {status for status, body in answers if not is_shed(status, body)} == {200}
    assert ask(service)[1]["answers"][0]["versions"] == {"task": 2, "models": {"small": 2, "large": 2}}
    assert len(processes(service)) == 2


def test_the_live_journals_replay_to_themselves(folder, settings, service):
    """Each generation has a journal of its own, from its start. The second champion has the same shape and profile."""
    wait_for(lambda: ask(service)[0] == 200 and len(read(folder / "journal-2.jsonl")) > 1)
    known = make_knowledge(settings, load_catalog(open_registry(settings), "champion"))
    for name in ("journal.jsonl", "journal-2.jsonl"):
        journal = read(folder / name)
        assert replay(make_scheduler(settings, known), journal) == journal


def test_sigterm_with_pending_texts_answers_them_all_and_exits_with_status_0(service):
    """The last test that shares the service. The device process is paused, so that no request ends too early."""
    device = processes(service)[0]
    device.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: ask(service), 10)
    wait_for(lambda: status_of(service)["pending"] == 10)
    assert [status for status, _ in end_in_flight(service, [device], requests)] == [200] * 10


def test_what_can_be_known_before_serving_is_refused_before_serving(tmp_path):
    def refused(error, sentence, **changes):
        with pytest.raises(error, match=sentence):
            launch(settings_for(tmp_path, **changes), tmp_path, free_port())

    publisher = MlflowPublisher(tmp_path)
    publish_tiny(publisher, device="another device")
    refused(RegistryError, "no model pliant-cascade-task-... has a version under the alias nightly", alias="nightly")
    refused(DeviceError, "the profile was measured on another device, but this device is cpu")
    publisher.publish(cascade_level("colours", "large"), tiny_classifier("colours", "large", seed=1))
    refused(ArtifactError, "was planned with classifier", any_profile=True)
