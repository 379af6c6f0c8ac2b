"""Events reach Prefect at least once each, through failures, restarts and full disks, and never hold up the event loop."""

from __future__ import annotations

import io
import json
import urllib.error
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.serving import events
from pliant.serving.events import ALARM, Event, EventOutbox, EventServer, latest_events, server_of


def alarm(number: int = 0) -> Event:
    return Event(ALARM, "tokens", {"reason": f"alarm {number}", "stream": "digit"})


class Receiver:
    """Prefect's side: takes events, or fails in the ways that are listed, one attempt each."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures, self.taken, self.attempts = list(failures), [], 0

    def __call__(self, batch: list[Event]) -> None:
        self.attempts += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.taken += [event.identity for event in batch]


def status(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://prefect", code, "", None, io.BytesIO())  # type: ignore[arg-type]


def outbox(home: Path, post) -> EventOutbox:
    return EventOutbox(home, "tokens", None, post)


def test_an_event_that_the_server_did_not_take_waits_on_disk_and_is_sent_by_the_next_process(tmp_path):
    event, first = alarm(), outbox(tmp_path, Receiver(OSError("refused"), OSError("refused")))
    first.emit(event)
    assert not first.attempt()
    assert not first.attempt()
    receiver = Receiver()
    second = outbox(tmp_path, receiver)
    assert second.waiting == 1
    assert second.deliver()
    assert receiver.taken == [event.identity]
    assert outbox(tmp_path, receiver).waiting == 0
    assert latest_events(tmp_path) == [event]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["emit", "attempt", "fail", "busy", "restart"]), max_size=25))
def test_every_event_arrives_whatever_fails_in_between_and_in_order(tmp_path_factory, steps):
    home, emitted, receiver = tmp_path_factory.mktemp("home"), [], Receiver()
    box = outbox(home, receiver)
    for step in [*steps, "attempt"]:
        if step == "emit":
            emitted.append(alarm(len(emitted)))
            box.emit(emitted[-1])
        elif step == "restart":
            box.attempt()  # what was emitted is on disk once an attempt was made
            box = outbox(home, receiver)
        else:
            receiver.failures = {"attempt": [], "fail": [OSError("gone")], "busy": [status(503)]}[step]
            box.attempt()
    assert receiver.taken == [event.identity for event in emitted]
    assert [event.identity for event in latest_events(home)] == receiver.taken


def test_an_event_that_the_server_refuses_does_not_keep_the_others(tmp_path):
    receiver = Receiver(status(422), None, status(422), None)
    box, sent = outbox(tmp_path, receiver), [alarm(0), alarm(1), alarm(2)]
    for event in sent:
        box.emit(event)
    assert box.attempt()
    assert receiver.taken == [sent[0].identity, sent[2].identity]


def test_the_oldest_events_are_given_up_where_too_many_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MOST_WAITING", 3)
    box, sent = outbox(tmp_path, receiver := Receiver(OSError("gone"))), [alarm(number) for number in range(5)]
    for event in sent:
        box.emit(event)
    box.attempt()
    assert box.attempt()
    assert receiver.taken == [event.identity for event in sent[2:]]


def test_lines_that_are_no_events_are_passed_over(tmp_path):
    event = alarm()
    box = outbox(tmp_path, None)
    box.emit(event)
    box.attempt()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'\xff\n{"name": 1}\n[]\n' + b"[" * 100_000 + b'\n{"torn')
    assert latest_events(tmp_path) == [event]


@pytest.mark.parametrize("payload", [{"x": float("nan")}, {"x": object()}, {"x": "y" * 100_000}])
def test_a_payload_that_the_server_could_not_take_is_an_error_of_the_caller(tmp_path, payload):
    with pytest.raises(InputError, match="payload"):
        outbox(tmp_path, None).emit(Event(ALARM, "tokens", payload))


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"PREFECT_API_KEY": "k"}, "Bearer k"),
        ({"PREFECT_API_AUTH_STRING": "admin:pass", "PREFECT_API_KEY": "k"}, "Basic YWRtaW46cGFzcw=="),
        ({}, None),
    ],
)
def test_the_server_is_sent_what_prefect_takes_with_its_authorization(monkeypatch, variables, header):
    requests = []

    def urlopen(request, timeout):
        requests.append(request)
        return io.BytesIO()

    monkeypatch.setattr(events.urllib.request, "urlopen", urlopen)
    server = server_of({"PREFECT_API_URL": "http://prefect/api/", **variables})
    assert isinstance(server, EventServer)
    event = alarm()
    server.post([event])
    (request,) = requests
    assert request.full_url == "http://prefect/api/events"
    assert request.get_header("Authorization") == header
    (body,) = json.loads(request.data)
    assert body["id"] == event.identity
    assert body["resource"]["prefect.resource.id"] == "pliant.tokens"
    assert body["payload"]["reason"] == "alarm 0"


class Prefect(BaseHTTPRequestHandler):
    """Prefect's server, of which only the events matter here."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken += [event["payload"]["reason"] for event in json.loads(body)]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_arguments) -> None: ...
