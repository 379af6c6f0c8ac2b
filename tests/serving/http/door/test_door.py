"""Who is turned away before the app is called: nobody may send it, or the loop cannot bear it. A real server answers."""

from __future__ import annotations

import json
import time

import pytest

from pliant.serving.http.api_errors import ApiError, error_response
from pliant.serving.http.door.connections import DoorLimits, Stage
from pliant.serving.http.door.door import Door, LimitedProtocol
from pliant.serving.http.door.load import LoopLoad
from pliant.serving.request_context import FrontDoor
from tests.fixtures.door import answer, behind_the_door, next_reply, post, rest, status, until


@pytest.mark.parametrize("connections, code", [(1, b"connections already"), (10, b"the service is busy")])
def test_who_is_turned_away_while_he_sends_can_read_why(connections, code, monkeypatch):
    """A close with unread bytes would be a reset, which takes the answer away from a client that still sends."""
    with behind_the_door(answer, connections=connections) as server:
        assert status(server.ask()) == 200
        until(lambda: len(server.door.connections) == 0)
        monkeypatch.setattr(server.door, "is_full", lambda _age, _tenant: True)
        held = [server.connect() for _ in range(connections // 2 + 1)]
        held[0].sendall(b"GET / HTTP/1.1\r\nhost: ")
        until(lambda: Stage.HEAD in [*server.door.connections._stage.values()])
        monkeypatch.setattr("pliant.serving.http.door.connections.STALLED", 100.0)
        for _ in range(20):
            connection = server.connect()
            connection.sendall(post(body=b"x" * 300_000, connection="close"))
            reply = rest(connection)
            assert status(reply) == 503 and code in reply and reply.endswith(b"}")
            connection.close()
        until(lambda: server.door.parting == 0)
        for connection in held:
            connection.close()


def saturate(server, monkeypatch, is_full=lambda _self, _waiting, _age, _under_way: True) -> None:
    monkeypatch.setattr(LoopLoad, "saturated", property(lambda _self: True))
    monkeypatch.setattr(LoopLoad, "is_full", is_full)


def note_parsed(monkeypatch) -> list[bytes]:
    """Return the list to which each parsed target is added, for connections from now on: a parser keeps its callbacks."""
    parsed: list[bytes] = []
    on_url = LimitedProtocol.on_url
    monkeypatch.setattr(LimitedProtocol, "on_url", lambda self, url: parsed.append(url) or on_url(self, url))
    return parsed


def test_a_whole_request_that_the_loop_cannot_bear_is_turned_away_without_parsing(monkeypatch):
    parsed = note_parsed(monkeypatch)
    with behind_the_door(answer) as server:
        connection = server.connect()
        connection.sendall(post())
        assert status(next_reply(connection)) == 200
        with monkeypatch.context() as patch:
            saturate(server, patch)
            for _ in range(3):
                connection.sendall(post())
                reply = next_reply(connection)
                assert status(reply) == 503 and b"retry-after: 1" in reply and b'"code": "busy"' in reply
        assert parsed == [b"/predict"], "the first one alone"
        connection.sendall(post())  # the connection stays of use
        assert status(next_reply(connection)) == 200
        until(lambda: server.codes == ["busy"] * 3)
        connection.close()


def test_the_rest_of_a_message_is_never_taken_for_a_request(monkeypatch):
    with behind_the_door(answer) as server:
        connection = server.connect()
        body = post()
        connection.sendall(post(body=body)[: -len(body)])
        until(lambda: len(server.door.connections) == 1)
        time.sleep(0.1)
        with monkeypatch.context() as patch:
            patch.setattr(LoopLoad, "saturated", property(lambda _self: True))
            patch.setattr(server.door, "is_full", lambda age, _tenant: age == 0.0)
            patch.setattr(LimitedProtocol, "_age", lambda _self: 0.0)
            connection.sendall(body)
            assert status(next_reply(connection)) == 200
            connection.sendall(body)
            assert status(next_reply(connection)) == 503
        connection.close()


def an_opened_door(**limits) -> tuple[Door, list[tuple[str, int]]]:
    """Return a door that is open, and the errors that it counts."""
    counted: list[tuple[str, int]] = []
    door = Door(lambda _path: error_response, lambda _path: True, DoorLimits(**limits))
    door.open(lambda code, number: counted.append((code, number)), FrontDoor())
    return door, counted


@pytest.mark.virtual
async def test_an_answer_to_who_is_turned_away_is_whole_and_says_whether_the_connection_is_kept():
    door, counted = an_opened_door()
    body = json.dumps({"error": {"code": "busy", "field": None, "message": "later"}}).encode()
    for close, end in ((False, b""), (True, b"connection: close\r\n")):
        id = [(b"x-request-id", b"seven")]
        reply = door.refusal(ApiError(503, "busy", "later", retry_after=3.0), "/predict", close, id)
        head, _, content = reply.partition(b"\r\n\r\n")
        lines = (head + b"\r\n").partition(b"\r\n")
        assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
        assert content == body and b"content-length: %d\r\n" % len(body) in lines[2]
        assert b"retry-after: 3\r\n" in lines[2] and b"x-request-id: seven\r\n" in lines[2]
        assert lines[2].count(b"connection:") == len(end.splitlines()) and lines[2].endswith(end)
    assert counted == [("busy", 1)] * 2
