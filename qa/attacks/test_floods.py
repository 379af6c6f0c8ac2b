"""Connections and requests that cost a service without end: heads, trailers, idle connections, large bodies, wrong keys."""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import time
from contextlib import suppress
from functools import partial

import pytest

from pliant.serving.http.access.keys import Tenant
from qa.attacks.attackers import under_attack
from qa.targets import bearer, exchange

BODY = json.dumps({"inputs": "a dog"}).encode()
REQUEST = ("POST", "/predict", BODY)
HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
TRAILER = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
LINES = (b"x-long: " + b"a" * 4000 + b"\r\n") * 16
HALF = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
WHOLE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODIES = {
    "numbers": '{"inputs": [' + "1," * 3_000_000 + "1]}",
    "objects": '{"inputs": [' + "{}," * 1_000_000 + "{}]}",
    "blank texts": json.dumps({"inputs": [[" " * 65_000]] * 150}),
    "invisible texts": json.dumps({"inputs": [["\u200b" * 20_000]] * 150}, ensure_ascii=False),
    "long texts": json.dumps({"inputs": [["a dog " * 10_000]] * 150, "truncate": True}),
}
WRONG = {"authorization": f"Bearer pliant_00000000_{'0' * 64}"}
UNKNOWN = {
    "without a key": ({}, json.dumps({"inputs": "a dog " * 150_000}).encode()),
    "with a wrong key": (WRONG, BODY),
    "with a long wrong key": ({"authorization": "Bearer " + "a" * 30_000}, BODY),
    "under a foreign name": ({**WRONG, "host": "rebound.example"}, BODY),
}


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def stream(url: str, first: bytes, piece: bytes) -> None:
    """Send up to 64 MB on one connection."""
    with suppress(OSError), connect(url) as connection:
        connection.sendall(first)
        for _ in range(1000):
            connection.sendall(piece)
    time.sleep(0.02)


def hold(url: str, first: bytes) -> None:
    """Open 1500 connections, 500 a second, that send only the beginning of a request, hold them, and close them as fast."""
    connections = []
    for _ in range(1500):
        with suppress(OSError):
            connections.append(connect(url))
            connections[-1].sendall(first)
        time.sleep(0.002)
    time.sleep(3)
    for connection in connections:
        connection.close()
        time.sleep(0.002)


def hold_anew(url: str, first: bytes) -> None:
    """Hold 2000 connections, about twice as many as a service has at once, after an answer or none; open each that is closed
    anew, up to 500 a second."""
    with selectors.DefaultSelector() as open_ones:
        end = time.monotonic() + 15.0
        while time.monotonic() < end:
            for key, _ in open_ones.select(0):
                if not key.fileobj.recv(65536):
                    open_ones.unregister(key.fileobj)
                    key.fileobj.close()
            with suppress(OSError):
                if len(open_ones.get_map()) < 2000:
                    connection = connect(url)
                    open_ones.register(connection, selectors.EVENT_READ)
                    connection.sendall(first)
            time.sleep(0.002)
        for key in open_ones.get_map().values():
            key.fileobj.close()


CONNECTIONS = {
    "lines without end": [partial(stream, first=HEAD, piece=LINES)] * 2,
    "trailers without end": [partial(stream, first=TRAILER, piece=LINES)] * 2,
    "one line without end": [partial(stream, first=HEAD + b"x-long: ", piece=b"a" * 65536)] * 2,
    "1500 after nothing": [partial(hold, first=b"")],
    "1500 after half a head": [partial(hold, first=HEAD)],
    "1500 after half a body": [partial(hold, first=HALF)],
    "2000 idle ones opened anew, no request": [partial(hold_anew, first=b"")],
    "2000 idle ones opened anew, after an answer": [partial(hold_anew, first=WHOLE)],
}


@pytest.mark.parametrize("what", CONNECTIONS)
def test_01_connections(service, what, targets):
    under_attack(targets, service, REQUEST, CONNECTIONS[what])


def send(url: str, kind: str) -> None:
    with suppress(OSError, http.client.HTTPException):
        exchange(url, "POST", "/predict", BODIES[kind].encode(), timeout=30.0)
    time.sleep(0.1)


@pytest.mark.parametrize("kind", BODIES)
def test_05_bodies_with_hundreds_of_thousands_of_values(service, kind, targets):
    under_attack(targets, service, REQUEST, [partial(send, kind=kind)], rounds=3)


def ask_200(url: str, headers: dict[str, str], body: bytes, allowed: tuple[int, ...]) -> None:
    """Send 200 requests, whose answers must have an allowed status; 503 comes before the key is looked at."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    for _ in range(200):
        try:
            connection.request("POST", "/predict", body, {"content-type": "application/json", **headers})
            response = connection.getresponse()
            response.read()
            assert response.status in allowed, response.status
        except (OSError, http.client.HTTPException):
            connection.close()
    connection.close()


@pytest.fixture(scope="module")
def keyed(serve):
    """A service, and the keys of two tenants, one of which may not send much."""
    return serve("bins", {"acme": "use", "greedy": "use"}, {"greedy": Tenant(rate=5.0, max_waiting=2)})


@pytest.mark.parametrize("kind", [*UNKNOWN, "a tenant beyond its rate"])
def test_08_floods_that_no_key_opens_and_a_tenant_beyond_its_rate(keyed, kind, targets):
    service, keys = keyed
    headers, body = UNKNOWN.get(kind, (bearer(keys["greedy"]), BODY))
    allowed = (401, 421, 503) if kind in UNKNOWN else (200, 429, 503)
    attack = partial(ask_200, headers=headers, body=body, allowed=allowed)
    under_attack(targets, service, REQUEST, [attack], headers=bearer(keys["acme"]))


@pytest.mark.parametrize("request_line", ["GET /metrics", "GET /status", "GET /docs", "POST /refresh", "POST /x"])
def test_08_no_key_opens_nothing_but_health(keyed, request_line):
    status, headers, _ = exchange(keyed[0].url, *request_line.split(), b"{}")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
