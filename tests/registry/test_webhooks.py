"""Webhooks of a tracking server: registered once an address, signed, sent when a release is moved; a database has none."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError, RegistryError
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.webhooks import moves_release, register, verified

SECRET, NOW = "a secret of the service", 1_800_000_000.0


def headers(body: bytes, secret: str = SECRET, at: float = NOW, delivery: str = "1") -> dict[str, str]:
    """What MLflow sends: its signature is over delivery, time and body (mlflow/webhooks/delivery.py)."""
    signed = f"{delivery}.{at:.0f}.".encode() + body
    digest = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    return {"X-MLflow-Signature": f"v1,{digest}", "X-MLflow-Timestamp": f"{at:.0f}", "X-MLflow-Delivery-Id": delivery}


@given(st.binary(max_size=200), st.floats(-299, 299), st.text("0123456789abcdef-", max_size=36))
def test_a_fresh_signed_message_is_verified_and_with_any_other_secret_or_body_it_is_not(body, seconds, delivery):
    sent = headers(body, delivery=delivery)
    assert verified(body, sent, SECRET, NOW + seconds)
    assert not verified(body, sent, SECRET + "x", NOW)
    assert not verified(body + b" ", sent, SECRET, NOW)


@pytest.mark.parametrize("age", [301, -301, 10**9])
def test_an_old_message_that_is_played_again_and_one_of_the_future_are_refused(age):
    assert not verified(b"{}", headers(b"{}"), SECRET, NOW + age)


@pytest.mark.parametrize("name", ["X-MLflow-Signature", "X-MLflow-Timestamp", "X-MLflow-Delivery-Id"])
@pytest.mark.parametrize("value", [None, "", "v2,abcd", "v1,===", "v1,\xe9", "-1", "\u0661", "9" * 30, "\ud800"])
def test_a_message_without_its_headers_or_with_odd_ones_is_refused(name, value):
    sent = headers(b"{}") | {name: value}
    assert not verified(b"{}", {key: text for key, text in sent.items() if text is not None}, SECRET, NOW)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'{"data": 1}', b'{"data": {"name": "pliant-release-bins"}}', b"\xff"]
)
def test_what_is_no_message_about_the_systems_releases_moves_none(body):
    assert not moves_release(body, "tokens")


def test_a_database_has_no_webhooks_and_says_what_to_do(tmp_path):
    database = MlflowRegistry(f"sqlite:///{tmp_path / 'mlflow.db'}", "pliant-tokens", tmp_path)
    with pytest.raises(RegistryError, match="no tracking server, and only one sends webhooks: set MLFLOW_TRACKING_URI"):
        register(database, "tokens", "https://host", SECRET)


def test_a_short_secret_is_refused(tmp_path):
    with pytest.raises(InputError, match="secret is 5 characters, but must be at least 16"):
        register(MlflowRegistry("http://127.0.0.1:1", "pliant-tokens", tmp_path), "tokens", "https://host", "short")
