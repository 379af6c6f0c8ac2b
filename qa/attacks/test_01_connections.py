"""Heads without end, trailers without end, slow and idle connections by the thousand, held or opened anew."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from functools import partial

import pytest

from qa.targets import under_attack

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())
HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
TRAILER = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
LINES = (b"x-long: " + b"a" * 4000 + b"\r\n") * 16
BODY = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
IDLE = 2000  # connections, about twice as many as a service has at once
WHOLE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
BEGINNINGS = {"nothing": b"", "half a head": HEAD, "half a body": BODY}


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def flood(url: str, first: bytes, piece: bytes) -> None:
    """Send up to 64 MB on one connection."""
    with contextlib.suppress(OSError), connect(url) as connection:
        connection.sendall(first)
        for _ in range(1000):
            connection.sendall(piece)
    time.sleep(0.02)


def hold(url: str, count: int, first: bytes) -> None:
    """Open 500 connections a second that send only the beginning of a request, hold them, and close them as fast."""
    connections = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            connections.append(connect(url))
            connections[-1].sendall(first)
        time.sleep(0.002)
    time.sleep(3)
    for connection in connections:
        connection.close()
        time.sleep(0.002)


def hold_anew(url: str, count: int, first: bytes, seconds: float) -> None:
    """Hold connections after an answer or none, and open each that is closed anew, up to 500 a second."""
    connections: list[socket.socket] = []
    with selectors.DefaultSelector() as open_ones:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in open_ones.select(0):
                if not key.fileobj.recv(65536):
                    open_ones.unregister(key.fileobj)
                    connections.remove(key.fileobj)
                    key.fileobj.close()
            with contextlib.suppress(OSError):
                if len(connections) < count:
                    connections.append(connect(url))
                    open_ones.register(connections[-1], selectors.EVENT_READ)
                    connections[-1].sendall(first)
            time.sleep(0.002)
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    "first, piece",
    [(HEAD, LINES), (TRAILER, LINES), (HEAD + b"x-long: ", b"a" * 65536)],
    ids=["lines", "trailers", "one line"],
)
def test_heads_and_trailers_without_end(service, request, first, piece):
    attack = partial(flood, first=first, piece=piece)
    under_attack(service, REQUEST, [attack] * 2, f"01 {request.node.callspec.id} without end")


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_1500_connections_that_send_no_more(service, beginning):
    attack = partial(hold, count=1500, first=BEGINNINGS[beginning])
    under_attack(service, REQUEST, [attack], f"01 1500 connections after {beginning}")


@pytest.mark.parametrize("first", [b"", WHOLE], ids=["no request", "an answer"])
def test_2000_idle_connections_that_are_opened_anew_when_they_are_closed(service, request, first):
    attack = partial(hold_anew, count=IDLE, first=first, seconds=15.0)
    under_attack(service, REQUEST, [attack], f"01 {IDLE} idle connections after {request.node.callspec.id}")
