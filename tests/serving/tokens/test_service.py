"""The whole service over real HTTP: `bentoml serve`, a device process, and a registry of tiny artifacts."""

from __future__ import annotations

import contextlib
import json
import platform
import signal
import socket
import urllib.request
from urllib.parse import urlsplit

import pytest

from pliant.errors import InputError, RegistryError, WorkerError
from pliant.protocol import Changed, replay
from pliant.serving.journal import FileRecorder, read
from pliant.serving.launch import launch
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from tests.fixtures.clients import PATIENCE, ask, call, free_port, wait_for
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
def service(folder):
    settings = settings_for(folder, journal=folder / "journal.jsonl")
    with running(settings, folder) as service:
        yield service


def metrics(service) -> str:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE) as response:
        return response.read().decode()


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
    for path in ("/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/docs", "/v2", "/v2/health/ready"):
        with urllib.request.urlopen(service.url + path, timeout=PATIENCE) as response:
            assert response.status == 200, path
    assert call(service, "POST", "/v2/models/dogs/infer", b"{}")[0] == 404


def test_the_documentation_page_finds_its_files_under_the_mount(service):
    for path in ("docs", "openapi.json", "swagger/swagger-ui-bundle.js", "swagger/swagger-ui.css"):
        with urllib.request.urlopen(f"{service.url}/v1/{path}", timeout=PATIENCE) as response:
            assert response.status == 200


def test_a_killed_device_process_comes_back_with_all_its_tasks_and_nobody_hangs(service):
    call(service, "POST", "/v1/tasks", b'{"name": "shapes", "version": 1}')
    processes(service)[0].kill()
    status, answer = ask(service, "shapes")
    assert status == 200, answer
    assert "pliant_worker_failures_total 1.0" in metrics(service)


def test_the_live_journal_replays_to_itself_from_start_to_end(folder, service):
    """The journal begins with the scheduler's knowledge, and has every task that was registered later."""
    wait_for(lambda: ask(service)[0] == 200 and len(read(folder / "journal.jsonl")) > 1)  # written about once a second
    journal = read(folder / "journal.jsonl")
    begin = journal[0].event
    assert isinstance(begin, Changed)
    assert replay(make("default", Knowledge.of(begin.facts)), journal) == journal


def test_sigterm_with_pending_requests_answers_them_all_and_exits_with_status_0(service):
    """The last test that shares the service. The device process is paused, so that no request ends too early."""
    device = processes(service)[0]
    device.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda _: ask(service), 20)
    wait_for(lambda: call(service, "GET", "/v1/status")[1]["pending"] == 20)
    assert [status for status, _ in end_in_flight(service, [device], requests)] == [200] * 20


def test_a_service_that_cannot_start_ends_and_says_where_to_look(folder):
    journal = folder / "of-another.jsonl"
    settings = settings_for(folder, journal=journal)
    ended = r"the service ended with status .* before it was ready; see .*failing.log"
    with contextlib.closing(FileRecorder(journal)):  # only the service itself sees that another one writes it
        failing = launch(settings, folder / "failing", free_port(), folder / "failing.log")
        with pytest.raises(WorkerError, match=ended):
            failing.wait_until_ready(PATIENCE)
    log = (folder / "failing.log").read_text()
    assert "but must be a file that no other service writes" in log and "Traceback" not in log
    assert "the service process has ended; its last lines say why" in log


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


def test_a_service_that_waits_ends_at_once_by_sigterm(tmp_path):
    settings, log = settings_for(tmp_path, wait_for_release=PATIENCE), tmp_path / "waiting.log"
    waiting = launch(settings, tmp_path / "waiting", free_port(), log)
    wait_for(lambda: "nothing to serve yet" in log.read_text())
    assert waiting.stop(PATIENCE / 2) == 0
    assert "ends before there was anything to serve" in log.read_text()


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
