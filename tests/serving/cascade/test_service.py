"""The whole cascade service over real HTTP: `bentoml serve`, device processes, and a registry of a tiny cascade."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest

from tests.fixtures.cascade.published import (
    SURE,
    UNSURE,
    MlflowPublisher,
    publish_tiny,
    settings_for,
)
from tests.fixtures.clients import PATIENCE, call, wait_for
from tests.fixtures.http.oip import outputs_in, text_tensor
from tests.fixtures.live import ConcurrentCalls, processes, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_tiny(MlflowPublisher(folder))
    with running(settings_for(folder, workers=2, placement="own", launch_limit=5.0), folder) as service:
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
    for path in (
        "/",
        "/livez",
        "/readyz",
        "/metrics",
        "/docs",
        "/status",
        "/openapi.json",
        "/v1/docs",
        "/v1/label",
        "/v2",
    ):
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
