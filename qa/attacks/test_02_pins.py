"""What any web page can send to a service on its visitor's machine: it must not pin a task to an old version."""

from __future__ import annotations

import contextlib
import http.client
import platform

import pytest

from qa.targets import under_attack
from tests.fixtures.clients import ask, call, image_body
from tests.fixtures.live import running
from tests.fixtures.tokens.published import CLASSES, publish, publish_all, settings_for
from tests.fixtures.tokens.samples import tiny_task

PIN = b'{"name": "digits", "version": 1}'
KINDS = (
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {},
    {"content-type": "application/json", "host": "rebound.example:3000"},
)
"""Kinds of requests that a page may send without being asked first (CORS), and one by a name that was rebound."""


def pin(url: str) -> None:
    for headers in KINDS:
        for path in ("/v1/tasks", "/v1/refresh"):
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("POST", path, PIN, headers)
                status = connection.getresponse().status
                assert status in (415, 421, 503), status
            connection.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    publish_all(folder, f"cpu-{platform.machine()}-1t")
    with running(settings_for(folder), folder) as service:
        digest = call(service, "GET", "/v1/status")[1]["backbone"]["digest"]
        publish(folder, tiny_task("digits", CLASSES, digest, seed=2))
        assert call(service, "POST", "/v1/refresh", b"{}")[1]["outcome"] == "changed"
        yield service


def test_pages_that_pin_an_old_version(service):
    under_attack(service, ("POST", "/v1/predict", image_body()), [pin], "02 pins by web pages")
    assert call(service, "GET", "/v1/status")[1]["pins"] == {}
    assert ask(service)[1]["versions"]["task"] == 2
