"""Floods of requests without a key, with wrong ones and under foreign names, and a tenant beyond its limits."""

from __future__ import annotations

import http.client
import json
from functools import partial

import pytest

from pliant.serving.http.access.keys import Tenant
from qa import grounds
from qa.targets import bearer, exchange, make_keys, under_attack

BODY = json.dumps({"inputs": "a dog"}).encode()
LARGE = json.dumps({"inputs": "a dog " * 150_000}).encode()
WRONG = {"authorization": f"Bearer pliant_00000000_{'0' * 64}"}
ATTACKS = {
    "without a key": ({}, LARGE),
    "with a wrong key": (WRONG, BODY),
    "with a long wrong key": ({"authorization": "Bearer " + "a" * 30_000}, BODY),
    "under a foreign name": ({**WRONG, "host": "rebound.example"}, BODY),
}


def flood(url: str, headers: dict[str, str], body: bytes, allowed: tuple[int, ...] = (401, 421, 503)) -> None:
    """Send 200 requests, all of which must be refused, unless another status is allowed; 503 before the key is looked at."""
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
def served(tmp_path_factory):
    """A service, and the keys of two tenants, one of which may not send much."""
    folder = tmp_path_factory.mktemp("attacked")
    limits = {"greedy": Tenant(rate=5.0, max_waiting=2)}
    keys = make_keys(folder / "keys.json", {"acme": "use", "greedy": "use"}, limits)
    with grounds.served("bins", folder, keys_file=folder / "keys.json") as service:
        yield service, keys


def attacked(served, attack, subject: str) -> None:
    service, keys = served
    under_attack(service, ("POST", "/predict", BODY), [attack], f"08 {subject}", headers=bearer(keys["acme"]))


@pytest.mark.parametrize("kind", ATTACKS)
def test_floods_that_no_key_opens(served, kind):
    headers, body = ATTACKS[kind]
    attacked(served, partial(flood, headers=headers, body=body), kind)


def test_a_tenant_beyond_its_rate(served):
    headers = bearer(served[1]["greedy"])
    attack = partial(flood, headers=headers, body=BODY, allowed=(200, 429, 503))
    attacked(served, attack, "a tenant beyond its rate")


@pytest.mark.parametrize("request_line", ["GET /metrics", "GET /status", "GET /docs", "POST /refresh", "POST /x"])
def test_no_key_opens_nothing_but_health(served, request_line):
    status, headers, _ = exchange(served[0].url, *request_line.split(), b"{}")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
