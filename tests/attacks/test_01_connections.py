"""Heads without end, trailers without end, slow and idle connections by the thousand."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from functools import partial

import pytest

from tests.fixtures.attacks import under_attack

pytestmark = pytest.mark.attack
REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())
HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
TRAILER = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
LINES = (b"x-long: " + b"a" * 4000 + b"\r\n") * 16
BODY = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
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
