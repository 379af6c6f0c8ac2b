"""Floods of requests without a key, with wrong ones and under foreign names, and a tenant beyond its limits."""

from __future__ import annotations

import contextlib
import http.client
import json
from functools import partial

import pytest

from qa.targets import under_attack
from serving.http.access.key_file import update_keys
from serving.http.access.keys import Tenant
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.live import running
from tests.serving.http.access.test_keys import with_new

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
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    secrets = {}
    for tenant, limits in (("acme", Tenant()), ("greedy", Tenant(rate=5.0, max_waiting=2))):
        secrets[tenant], _ = update_keys(file, partial(with_new, tenant=tenant, limits=limits))
    return file, secrets


@pytest.fixture(scope="module")
def service(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("attacked")
    publish_tiny(MlflowPublisher(folder), "colours")
    with running(settings_for(folder, keys_file=keys[0]), folder) as service:
        yield service


def attacked(service, keys, attack, subject: str) -> None:
    headers = {"authorization": f"Bearer {keys[1]['acme']}"}
    under_attack(service, ("POST", "/predict", BODY), [attack], f"08 {subject}", headers=headers)


@pytest.mark.parametrize("kind", ATTACKS)
def test_floods_that_no_key_opens(service, keys, kind):
    headers, body = ATTACKS[kind]
    attacked(service, keys, partial(flood, headers=headers, body=body), kind)


def test_a_tenant_beyond_its_rate(service, keys):
    headers = {"authorization": f"Bearer {keys[1]['greedy']}"}
    attacked(
        service, keys, partial(flood, headers=headers, body=BODY, allowed=(200, 429, 503)), "a tenant beyond its rate"
    )


def test_no_key_opens_nothing_but_health(service):
    for method, path in (
        ("GET", "/metrics"),
        ("GET", "/status"),
        ("GET", "/docs"),
        ("POST", "/refresh"),
        ("POST", "/x"),
    ):
        connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, b"{}", {"content-type": "application/json"})
            response = connection.getresponse()
            assert response.status == 401 and response.headers["www-authenticate"] == "Bearer", path
