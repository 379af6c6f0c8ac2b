"""Limits of connections: what a client may send, how long it may take, and what ends with it. A real server answers."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import struct
import time
import weakref

import pytest

from pliant.serving.http.door.connections import Stage
from pliant.serving.http.door.limits import DoorLimits
from pliant.serving.http.door.protocol import PROGRESS, LimitedProtocol
from tests.fixtures.door import Held, answer, behind_the_door, next_reply, post, rest, status, until


def sent_until_closed(server, first: bytes, piece: bytes, most: int) -> tuple[int, bytes]:
    """Send pieces until the server closes; return the bytes that were sent, and its answer."""
    connection, count = server.connect(), 0
    connection.sendall(first)
    with contextlib.suppress(OSError):
        while count < most:
            connection.sendall(piece)
            count += len(piece)
    reply = b""
    with contextlib.suppress(OSError):
        reply = rest(connection)
    connection.close()
    return count, reply


@pytest.mark.parametrize(
    "first, piece",
    [
        (b"GET / HTTP/1.1\r\nhost: test\r\n", b"x-long: " + b"a" * 4000 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nhost: test\r\nx-long: ", b"a" * 4000),
        (b"GET /", b"a" * 4000),
        (b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x-t: " + b"a" * 4000 + b"\r\n"),
        (b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-t: ", b"a" * 4000),
        (b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1;", b"a" * 4000),
    ],
    ids=["lines", "one line", "address", "trailers", "one trailer", "chunk extension"],
)
def test_a_head_or_trailer_without_end_is_cut_off(first, piece):
    with behind_the_door(answer) as server:
        most = 256 * 1024 * 1024
        count, _ = sent_until_closed(server, first, piece, most)
        assert count < most  # what both sides' sockets buffer is some MB
        assert server.codes in (["head_too_large"], ["malformed"])
        assert status(server.ask()) == 200


@pytest.mark.parametrize("lines, expected", [(99, 200), (100, 431)])
def test_the_number_of_headers_is_limited(lines, expected):
    request = b"GET / HTTP/1.1\r\nhost: test\r\n" + b"a: b\r\n" * lines + b"\r\n"
    with behind_the_door(answer) as server:
        assert status(server.ask(request)) == expected


@pytest.mark.parametrize("size, expected", [(60_000, 200), (70_000, 431)])
def test_the_size_of_a_head_that_comes_at_once_is_limited(size, expected):
    with behind_the_door(answer) as server:
        assert status(server.ask(b"GET / HTTP/1.1\r\nhost: test\r\na: " + b"b" * size + b"\r\n\r\n")) == expected


def test_a_large_body_and_a_body_in_small_chunks_pass():
    chunked = (
        b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 50_000 + b"0\r\n\r\n"
    )
    with behind_the_door(answer) as server:
        assert status(server.ask(post(body=b"a" * 3_000_000))) == 200
        assert status(server.ask(chunked)) == 200


@pytest.mark.parametrize(
    "begin, expected",
    [
        (b"", None),
        (b"GET / HTTP/1.1\r\nhost: ", 408),
        (post(body=b"12345")[:-3], 408),
        (b"GET / HTTP/1.1\r\nhost: test\r\n\r\n", 200),
    ],
    ids=["silent", "head", "body", "idle"],
)
def test_a_connection_that_is_not_used_in_time_is_closed(begin, expected):
    with behind_the_door(answer, head_seconds=0.1, idle_seconds=0.1, body_seconds=0.1) as server:
        connection = server.connect()
        connection.sendall(begin)
        reply = rest(connection)
        connection.close()
        assert (status(reply) if reply else None) == expected


def test_line_ends_do_not_keep_a_connection_open():
    with behind_the_door(answer, idle_seconds=0.1) as server:
        connection = server.connect()
        end = time.monotonic() + 20
        with pytest.raises(OSError):
            while time.monotonic() < end:
                connection.sendall(b"\r\n")
                time.sleep(0.05)
        connection.close()


def test_idle_connections_at_the_limit_held_or_opened_anew_keep_nobody_out():
    with behind_the_door(answer, connections=20) as server:
        used = server.connect()
        used.sendall(post())
        assert status(next_reply(used)) == 200
        idle = [server.connect() for _ in range(40)]
        for number in range(100):
            assert status(server.ask()) == 200
            idle[number % 40].close()
            idle[number % 40] = server.connect()
        assert server.codes == [] and len(server.door.connections) <= 20
        assert used.recv(1000) == b"", "the one that was idle longest was closed"
        latest = idle[99 % 40]
        latest.sendall(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        assert status(latest.recv(1000)) == 200
        for connection in (used, *idle):
            connection.close()


def test_requests_under_way_are_not_closed_for_others_and_one_that_drips_is():
    piece = b"a" * PROGRESS
    with behind_the_door(answer, connections=2) as server:
        coming, dripping = server.connect(), server.connect()
        body = post(body=piece * 1000)[: -1000 * PROGRESS]
        for connection in (coming, dripping):
            connection.sendall(body)
        until(lambda: sorted(map(server.door.connections.stage, server.door.connections._stage)) == [Stage.BODY] * 2)
        assert status(server.ask()) == 503, "neither has come to a stand"
        sent, answers = 0, []
        while 200 not in answers:
            coming.sendall(piece)
            dripping.sendall(b"a")
            sent += 1
            assert sent < 900
            time.sleep(0.02)
            answers.append(status(server.ask()))
        coming.sendall(piece * (1000 - sent))
        assert status(coming.recv(1000)) == 200
        assert status(dripping.recv(1000)) == 408
        for connection in (coming, dripping):
            connection.close()


def test_a_connection_may_idle_for_longer_than_clients_and_proxies_keep_theirs():
    assert DoorLimits().idle_seconds > 60.0
    with behind_the_door(answer, idle_seconds=7.0) as server:
        connection = server.connect()
        connection.sendall(post())
        assert status(connection.recv(1000)) == 200
        (kept,) = server.door.connections._stage
        assert kept.timeout_keep_alive == 7.0, "and not uvicorn's 5 s"
        connection.close()


def test_who_is_turned_away_and_goes_on_sending_is_cut_off():
    with behind_the_door(answer, head_bytes=1000) as server:
        connection = server.connect()
        connection.sendall(b"GET / HTTP/1.1\r\nx-long: ")
        until(lambda: len(server.door.connections) == 1)
        time.sleep(0.1)
        connection.sendall(b"a" * 2000)
        assert status(connection.recv(1000)) == 431
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < began + 20:
                connection.sendall(b"a" * 65536)
        until(lambda: server.door.parting == 0)
        connection.close()


def test_a_connection_is_turned_away_where_all_others_wait_for_answers():
    app = Held()
    with behind_the_door(app, connections=3) as server:
        connections = [server.connect() for _ in range(3)]
        for connection in connections:
            connection.sendall(post())
        until(lambda: app.begun == 3)
        assert status(server.ask()) == 503
        app.release.set()
        assert [status(connection.recv(1000)) for connection in connections] == [200] * 3
        for connection in connections:
            connection.close()


def test_a_request_ends_with_its_client_and_is_no_error(caplog):
    app = Held()
    with caplog.at_level(logging.WARNING), behind_the_door(app) as server:
        connection = server.connect()
        connection.sendall(post())
        until(lambda: app.begun == 1)
        connection.close()
        until(lambda: app.cancelled == 1)
        assert status(server.ask()) == 200
    assert caplog.messages == []


def test_nothing_is_kept_of_a_connection_that_was_reset_after_its_answer():
    """A client that closes without reading resets; what is kept of many makes collections of garbage long."""
    with behind_the_door(answer) as server:
        connection = server.connect()
        connection.sendall(post())
        until(lambda: connection.recv(1000, socket.MSG_PEEK).endswith(b"ok"))
        # Not among all objects: looking there takes longer than a connection may idle.
        kept = weakref.WeakSet(server.door.connections._stage)
        assert all(isinstance(one, LimitedProtocol) for one in kept)
        until(lambda: any(server.door.connections.stage(one) is Stage.IDLE for one in kept))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

        def gone() -> bool:
            gc.collect()
            return not kept

        until(gone, 20.0)  # the server itself would close an idle connection after 75 s


def test_the_app_starts_when_the_body_is_here():
    app = Held()
    with behind_the_door(app) as server:
        connection = server.connect()
        connection.sendall(post(body=b"12345")[:-1])
        assert status(server.ask()) == 200 and app.begun == 0
        connection.sendall(b"5")
        until(lambda: app.begun == 1)
        other = server.connect()
        other.sendall(post(body=b"a" * 100_000)[:-1])  # more than is kept before the app reads
        until(lambda: app.begun == 2)
        third = server.connect()
        third.sendall(post(body=b"12345", expect="100-continue")[:-5])
        until(lambda: app.begun == 3)
        for client in (connection, other, third):
            client.close()


def test_requests_that_wait_on_one_connection_are_limited():
    app = Held()
    with behind_the_door(app, pipelined=4) as server:
        connection = server.connect()
        connection.sendall(post() * 100)
        until(lambda: server.codes == ["busy"])
        until(lambda: app.cancelled == app.begun)
        assert status(server.ask(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")) == 200
        connection.close()


def test_pipelined_requests_are_answered_in_turn():
    with behind_the_door(answer) as server:
        connection = server.connect()
        connection.sendall(post() * 3 + post(connection="close"))
        assert rest(connection).count(b"HTTP/1.1 200") == 4
        connection.close()


def test_a_client_that_does_not_read_is_cut_off():
    async def talkative(scope, receive, send) -> None:
        size = 32 * 1024 * 1024
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size)})

    with behind_the_door(talkative, body_seconds=0.1) as server:
        connection = server.connect()
        connection.sendall(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        until(lambda: len(server.door.connections) == 1)
        until(lambda: len(server.door.connections) == 0)
        connection.close()
