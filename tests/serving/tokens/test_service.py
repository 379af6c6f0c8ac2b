"""The whole service over real HTTP: `bentoml serve`, two device processes, a registry of tiny artifacts, a collector."""

from __future__ import annotations

import json
import platform
import signal
import socket
import urllib.request
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pliant.errors import InputError, RegistryError
from pliant.serving.launch import launch
from pliant.serving.monitoring.metric_list import metrics_of, samples_of
from tests.fixtures.clients import PATIENCE, ask, call, free_port, is_shed, wait_for
from tests.fixtures.collector import collector
from tests.fixtures.http.oip import body_of, byte_tensor, outputs_in
from tests.fixtures.live import ConcurrentCalls, end_in_flight, processes, running
from tests.fixtures.tokens.http import png
from tests.fixtures.tokens.published import publish_all, settings_for

pytestmark = pytest.mark.slow

DEVICE = f"cpu-{platform.machine()}-1t"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_all(folder, DEVICE)
    return folder


@pytest.fixture(scope="module")
def traces():
    with collector() as traces:
        yield traces


@pytest.fixture(scope="module")
def service(folder, traces):
    often = {"refresh_seconds": 2.0, "watch_seconds": 0.5, "log_format": "json", "trace_share": 1.0}
    settings = settings_for(folder, device="cpu,cpu", journal=folder / "journal.jsonl", **often)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # milliseconds
        with running(settings, folder) as service:
            yield service


def samples_shown(service) -> list:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE) as response:
        families = text_string_to_metric_families(response.read().decode())
    return [sample for family in families for sample in family.samples]


def up(service) -> list[bool]:
    return [device["up"] for device in call(service, "GET", "/v1/status")[1]["devices"]]


def test_once_ready_it_answers_json_and_multipart_alike(service):
    status, by_json = ask(service)
    assert status == 200, by_json
    parts = [
        b'--b\r\ncontent-disposition: form-data; name="task"\r\n\r\ndigits\r\n',
        b'--b\r\ncontent-disposition: form-data; name="deadline"\r\n\r\n30\r\n',
        b'--b\r\ncontent-disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + png() + b"\r\n--b--\r\n",
    ]
    status, by_form = call(service, "POST", "/v1/predict", b"".join(parts), "multipart/form-data; boundary=b")
    assert status == 200, by_form
    assert sum(by_json["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)
    assert by_form["label"] == max(by_form["probabilities"], key=by_form["probabilities"].get)
    assert by_json["on_time"] and by_form["on_time"]


def test_the_open_inference_protocol_is_at_the_root_beside_what_bentoml_has_there(service):
    entry, data = byte_tensor("image", png(), png())
    content, headers = body_of({"inputs": [entry]}, data)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{service.url}/v2/models/digits/infer", content, sent)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        labels = outputs_in(json.load(response))["label"]
    assert labels == [ask(service)[1]["label"]] * 2
    for path in ("/", "/livez", "/readyz", "/metrics", "/docs", "/status", "/openapi.json", "/v1/docs", "/v2"):
        with urllib.request.urlopen(service.url + path, timeout=PATIENCE) as response:
            assert response.status == 200, path
    assert call(service, "POST", "/v2/models/dogs/infer", b"{}")[0] == 404


def test_the_documentation_page_finds_its_files_under_the_mount(service):
    for path in ("docs", "openapi.json", "swagger/swagger-ui-bundle.js", "swagger/swagger-ui.css"):
        with urllib.request.urlopen(f"{service.url}/v1/{path}", timeout=PATIENCE) as response:
            assert response.status == 200


def test_a_client_finds_the_wait_the_launch_and_the_device_of_its_request_in_its_own_trace(service, traces):
    (whole,) = traces.await_spans("POST /v1/predict", 1, PATIENCE)[:1]
    (device,), (launch,), (queue,) = (
        [span for span in traces.await_spans(name, 1, PATIENCE) if span.trace_id == whole.trace_id]
        for name in ("device", "launch", "queue")
    )
    assert device.parent_span_id == launch.span_id
    assert launch.parent_span_id == queue.parent_span_id == whole.span_id
    assert whole.start_time_unix_nano <= queue.start_time_unix_nano <= launch.start_time_unix_nano
    assert launch.end_time_unix_nano <= whole.end_time_unix_nano
    assert not [span for span in traces.spans if "livez" in span.name]


def test_a_task_registered_later_reaches_each_device_and_one_that_is_held_and_killed_costs_no_answer(service):
    assert call(service, "POST", "/v1/tasks", b'{"name": "shapes", "version": 1}')[0] == 200
    answers = ConcurrentCalls(lambda _: ask(service, "shapes"), 8).answers()
    answered = [answer for status, answer in answers if not is_shed(status, answer)]
    assert answered and {answer["label"] for answer in answered} <= {"round", "square"}
    held, other = processes(service)
    held.send_signal(signal.SIGSTOP)
    hanging = ConcurrentCalls(lambda _: ask(service), 8)
    wait_for(lambda: len(hanging.so_far()) >= 4)  # whatever the held one has, the other goes on
    assert all(status == 200 for status, _ in hanging.so_far())
    held.kill()
    assert [status for status, _ in hanging.answers()] == [200] * 8, "what the dead one had runs on the other"
    wait_for(lambda: up(service) == [True, True])
    assert {other.pid} < {process.pid for process in processes(service)}
    assert ask(service, "shapes")[0] == 200, "both have the task that was registered"


def test_what_is_shown_is_in_the_list_and_all_that_needs_requests_alone_is_shown(service):
    names = lambda: {each.name for each in samples_shown(service) if not each.name.startswith("bentoml_")}  # noqa: E731
    wait_for(lambda: {"pliant_drift", "pliant_refreshes_total"} <= names())
    shown, metrics = samples_shown(service), metrics_of("tokens")
    assert sum(each.value for each in shown if each.name == "pliant_worker_failures_total") >= 1
    assert names() <= {name for metric in metrics for name in samples_of(metric)}
    assert {name for metric in metrics if not metric.after for name in samples_of(metric)} <= names()
    labels = {metric.name: set(metric.labels) for metric in metrics if metric.kind != "histogram"}
    assert all(set(each.labels) == labels[each.name] for each in shown if each.name in labels)


def test_sigterm_with_pending_requests_answers_them_all_and_exits_with_status_0(service):
    """The last test that shares the service. The device processes are paused, so that no request ends too early."""
    held = processes(service)
    for device in held:
        device.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: ask(service), 20)
    wait_for(lambda: call(service, "GET", "/v1/status")[1]["pending"] == 20)
    assert [status for status, _ in end_in_flight(service, held, requests)] == [200] * 20


def test_every_line_of_its_log_is_an_object(folder):
    """Runs after the service has stopped."""
    entries = [json.loads(line) for line in (folder / "serve.log").read_text(encoding="utf-8").splitlines() if line]
    assert all({"time", "level", "logger", "message", "process"} <= set(entry) for entry in entries)
    assert len({entry["process"] for entry in entries}) >= 2  # BentoML's supervisor and the service
    assert any(entry["logger"] == "pliant.serving" and "runs on" in entry["message"] for entry in entries)


def test_a_service_may_be_started_before_its_registry_and_serves_the_first_release(tmp_path):
    settings, log = settings_for(tmp_path, wait_for_release=PATIENCE), tmp_path / "waiting.log"
    waiting = launch(settings, tmp_path / "waiting", free_port(), log)
    try:
        wait_for(lambda: "nothing to serve yet (there is no registry" in log.read_text())
        with pytest.raises(ConnectionRefusedError):  # a proxy or a client is not kept waiting
            socket.create_connection(("127.0.0.1", urlsplit(waiting.url).port))
        publish_all(tmp_path, DEVICE)
        waiting.wait_until_ready(PATIENCE)
        assert ask(waiting)[0] == 200
    finally:
        assert waiting.stop() == 0


def test_what_can_be_known_before_serving_is_refused_before_serving(folder, tmp_path):
    def refused(error, sentence, port=0, **changes):
        with pytest.raises(error, match=sentence):
            launch(settings_for(folder, **changes), tmp_path, port or free_port())

    refused(RegistryError, "no version under the alias nightly", alias="nightly")
    refused(InputError, "PLIANT_GAMMA is 3, but must be one of the profiled", gamma=3)
    refused(InputError, "PLIANT_POLICY is 'infaas'", policy="infaas")
    (tmp_path / "file").write_text("")
    unwritable = "journal is .*, but must be a file that this user can write"
    refused(InputError, rf"{unwritable} \(.*file is no folder\)", journal=tmp_path / "file" / "journal.jsonl")
    refused(InputError, rf"{unwritable} \(Is a directory\)", journal=tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        refused(InputError, "port is .*, but must be free", port=other.getsockname()[1])
