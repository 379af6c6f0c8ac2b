"""A tracking server's message makes a service look at the registry at once, if it is signed; nothing else does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import replace

import pytest

from pliant.serving.http.access.roles import is_open
from tests.fixtures.bins.in_process import QUIET, serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry

SECRET = "a secret of some length"
MOVED = json.dumps({"data": {"name": "pliant-release-bins", "alias": "champion", "version": "2"}}).encode()


def signed(body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"7.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "x_mlflow_signature": f"v1,{base64.b64encode(digest).decode()}",
        "x_mlflow_timestamp": timestamp,
        "x_mlflow_delivery_id": "7",
    }


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "colours")
    return registry


def test_a_signed_message_of_a_release_makes_the_service_look_and_one_of_another_system_does_not(registry):
    with serving(registry, replace(QUIET, webhook_secret=SECRET)) as service:
        publish_tiny(registry, "colours", seed=1)
        other = MOVED.replace(b"bins", b"cascade")
        answer = service.call("POST", "/registry-events", other, **signed(other))
        assert (answer.status_code, answer.json()) == (200, {"looks": False})
        assert service.assembly.generations.present.number == 1
        answer = service.call("POST", "/registry-events", MOVED, **signed(MOVED))
        assert (answer.status_code, answer.json()) == (200, {"looks": True})
        service.wait(service.endpoint._looking)
        assert service.assembly.generations.present.number == 2


@pytest.mark.parametrize(
    "headers",
    [{}, signed(MOVED, "another secret of a length"), signed(MOVED, at=1e9), signed(b"another body")],
)
def test_without_a_fresh_signature_by_the_secret_nothing_is_looked_at(headers, registry):
    with serving(registry, replace(QUIET, webhook_secret=SECRET)) as service:
        answer = service.call("POST", "/registry-events", MOVED, **headers)
        assert answer.status_code == 403 and service.endpoint._looking is None


def test_a_service_without_a_secret_takes_none_and_a_long_body_is_refused(registry):
    with serving(registry) as service:
        assert service.call("POST", "/registry-events", MOVED, **signed(MOVED, "")).status_code == 404
    with serving(registry, replace(QUIET, webhook_secret=SECRET)) as service:
        assert service.call("POST", "/registry-events", b"x" * 100_000, **signed(MOVED)).status_code == 413


def test_only_a_post_to_this_path_needs_no_key():
    assert is_open({"path": "/v1/registry-events", "method": "POST"})
    assert not is_open({"path": "/v1/registry-events", "method": "GET"})
    assert not is_open({"path": "/v1/predict", "method": "POST"})
