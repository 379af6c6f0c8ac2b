"""Who is turned away before the app is called: nobody may send it, or the loop cannot bear it. A real server answers."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from serving.http.api_errors import ApiError, error_response
from serving.http.door.door import Door
from serving.http.door.load import LoopLoad
from serving.http.door.protocol import SHED_HEAD_BYTES, LimitedProtocol
from serving.http.routing import ARRIVED
from tests.fixtures.door import Held, answer, behind_the_door, next_reply, post, rest, status, until


@pytest.mark.parametrize("connections, code", [(1, b"connections already"), (10, b"the service is busy")])
def test_who_is_turned_away_while_he_sends_can_read_why(connections, code, monkeypatch):
    """A close with unread bytes would be a reset, which takes the answer away from a client that still sends."""
    with behind_the_door(answer, connections=connections) as server:
        assert status(server.ask()) == 200
        until(lambda: len(server.door.connections) == 0)
        monkeypatch.setattr(server.door, "is_full", lambda _age: True)
        held = [server.connect() for _ in range(connections // 2 + 1)]
        until(lambda: len(server.door.connections) >= 1)
        for _ in range(20):
            connection = server.connect()
            connection.sendall(post(body=b"x" * 300_000, connection="close"))
            reply = rest(connection)
            assert status(reply) == 503 and code in reply and reply.endswith(b"}")
            connection.close()
        until(lambda: server.door.parting == 0)
        for connection in held:
            connection.close()


def test_a_request_that_nobody_may_send_is_turned_away_before_its_body_and_takes_no_place(monkeypatch):
    def judge(scope) -> None:
        if (b"authorization", b"right") not in scope["headers"]:
            raise ApiError(401, "unauthorized", "a key is missing", headers={"www-authenticate": "Bearer"})

    app, taken = Held(), []
    with behind_the_door(app) as server:
        assert status(server.ask()) == 200  # the door is open now
        monkeypatch.setattr(server.door, "_judge", judge)
        monkeypatch.setattr(server.door.load, "started", lambda: taken.append(1))
        connection = server.connect()
        connection.sendall(post(body=b"12345678")[:-8])
        reply = connection.recv(1000)
        assert status(reply) == 401 and b"www-authenticate: Bearer" in reply and b'"code": "unauthorized"' in reply
        assert (app.begun, taken, server.codes) == (0, [], ["unauthorized"])
        connection.sendall(b"12345678" + post(authorization="right"))  # the connection stays of use
        until(lambda: app.begun == 1)
        assert taken == [1]
        connection.close()


def saturate(server, monkeypatch, is_full=lambda _self, _waiting, _age: True) -> None:
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


def test_a_request_with_a_long_head_is_parsed_before_it_is_turned_away(monkeypatch):
    parsed = note_parsed(monkeypatch)
    with behind_the_door(answer) as server:
        connection = server.connect()
        saturate(server, monkeypatch)
        for size, times in ((SHED_HEAD_BYTES // 2, 0), (SHED_HEAD_BYTES, 1)):
            connection.sendall(post(cookie="a" * size))
            assert status(next_reply(connection)) == 503
            assert parsed == [b"/predict"] * times
        connection.close()


def test_retry_after_follows_the_deadlines_of_the_latest_sweep_and_is_encoded_once_whatever_the_path(monkeypatch):
    door, deadlines = Door(lambda _path: error_response, lambda path: path != "/other"), iter([1.0, 40.0])
    counted: list[tuple[str, int]] = []
    encoded: list[ApiError] = []
    busy = Door.busy
    monkeypatch.setattr(Door, "busy", lambda self: encoded.append(busy(self)) or encoded[-1])

    async def main() -> None:
        door.open(lambda code, number: counted.append((code, number)), lambda: next(deadlines))
        assert door.shed("/other") is None
        for number in range(2):
            assert b"retry-after: 1\r\n" in (door.shed(f"/{number}") or b"")
        door._sweep(asyncio.get_running_loop())
        assert b"retry-after: 2\r\n" in (door.shed("/predict") or b"")

    asyncio.run(main())
    assert counted == [("busy", 2)]
    assert len(encoded) == 2, "one for each sweep"


def test_a_connection_whose_requests_are_turned_away_is_closed_once_it_idles(monkeypatch):
    with behind_the_door(answer, head_seconds=0.1) as server:
        connection = server.connect()
        saturate(server, monkeypatch)
        connection.sendall(post())
        assert status(next_reply(connection)) == 503
        assert rest(connection) == b""
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
            patch.setattr(server.door, "is_full", lambda age: age == 0.0)
            patch.setattr(LimitedProtocol, "_age", lambda _self: 0.0)
            connection.sendall(body)
            assert status(next_reply(connection)) == 200
            connection.sendall(body)
            assert status(next_reply(connection)) == 503
        connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when bytes came")
def test_time_counts_from_the_socket_for_a_connection_that_waits_to_be_accepted(monkeypatch):
    ages: list[float] = []

    async def stop(scope, receive, send) -> None:
        ages.append(asyncio.get_running_loop().time() - scope[ARRIVED])
        if scope["path"] == "/stop":
            time.sleep(0.5)
        await answer(scope, receive, send)

    with behind_the_door(stop) as server:
        monkeypatch.setattr(server.door, "is_full", lambda _age: False)
        first = server.connect()
        first.sendall(post("/stop"))
        until(lambda: len(ages) == 1)
        others = [server.connect() for _ in range(3)]
        for other in others:
            other.sendall(post())
        sent = time.monotonic()
        for other in others:
            assert status(next_reply(other)) == 200
        waited = time.monotonic() - sent
        assert ages[0] < 0.2 and all(0.2 < age < waited + 0.05 for age in ages[1:])
        for connection in (first, *others):
            connection.close()


def test_a_request_that_the_loop_cannot_bear_is_turned_away_before_its_body(monkeypatch):
    with behind_the_door(answer) as server:
        monkeypatch.setattr(server.door, "is_full", lambda _age: True)
        connection = server.connect()
        connection.sendall(post(body=b"12345678")[:-8])
        reply = connection.recv(1000)
        assert status(reply) == 503 and b"retry-after: 1" in reply and b'"code": "busy"' in reply
        connection.sendall(b"12345678" + b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")  # the connection stays of use
        assert status(connection.recv(1000)) == 200
        connection.close()
