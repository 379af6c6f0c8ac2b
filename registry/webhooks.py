"""MLflow's webhooks: the tracking server tells services at once that an alias was moved, so that they look at the registry.

Only a tracking server sends them, and only to https and public addresses unless its own environment says otherwise
(MLFLOW_WEBHOOK_ALLOWED_SCHEMES=http,https, MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS=true). It keeps the list of webhooks for a
minute (MLFLOW_WEBHOOK_CACHE_TTL), so a new one may be passed over for so long, and it gives up after three attempts. So a
service polls all the same, and a message only makes it look earlier: it carries nothing that is believed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

from pliant.errors import InputError, RegistryError
from pliant.registry.mlflow_client import all_pages, shown
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import release

EVENT = "model_version_alias.created"
SIGNATURE, TIMESTAMP, DELIVERY = "x-mlflow-signature", "x-mlflow-timestamp", "x-mlflow-delivery-id"
FRESH_SECONDS = 300.0  # between the sender's clock and ours; MLflow signs once, and may try for a minute or so
LEAST_SECRET = 16  # characters


def register(registry: MlflowRegistry, system: str, url: str, secret: str) -> str:
    """Have the tracking server tell `url` about moved aliases, signed with `secret`; return the webhook's identifier.

    There is one webhook a system and address: an existing one gets the secret and is switched on. Raises `InputError` for
    a short secret, `RegistryError` where the registry is no tracking server, or the server refuses the address.
    """
    if len(secret) < LEAST_SECRET:
        raise InputError("secret", f"{len(secret)} characters", f"at least {LEAST_SECRET} characters")
    with _asking(registry, "the webhook could not be registered") as client:
        present = _webhooks(client, system, url)
        for webhook in present[1:]:  # two services that began at the same moment
            client.delete_webhook(webhook.webhook_id)
        if present:
            identity = str(present[0].webhook_id)
            client.update_webhook(identity, url=url, events=[EVENT], secret=secret, status="ACTIVE")
            return identity
        about = f"Tells a service of {system} that an alias in the registry was moved"
        return str(client.create_webhook(_name(system, url), url, [EVENT], about, secret, "ACTIVE").webhook_id)


def verified(body: bytes, headers: Mapping[str, str], secret: str, now: float) -> bool:
    """Whether a message was signed with `secret`, for this very body, not long from `now` (seconds since 1970).

    `headers` may be in any case. Takes as long for a signature that is nearly right as for one that is all wrong.
    """
    values = {name.lower(): value for name, value in headers.items()}
    signature, timestamp, delivery = (values.get(name, "") for name in (SIGNATURE, TIMESTAMP, DELIVERY))
    version, _, encoded = signature.partition(",")
    if not secret or version != "v1" or not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 20):
        return False
    try:
        given = base64.b64decode(encoded, validate=True)
        signed = f"{delivery}.{timestamp}.".encode() + body
    except (binascii.Error, ValueError):
        return False
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return hmac.compare_digest(given, expected) and abs(now - int(timestamp)) <= FRESH_SECONDS


def moves_release(body: bytes, system: str) -> bool:
    """Whether a message says that an alias of the system's releases was moved; False for anything else."""
    try:
        message = json.loads(body)
        return bool(message["data"]["name"] == release(system))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _asking(registry: MlflowRegistry, failed: str) -> AbstractContextManager[Any]:
    if urlsplit(registry.tracking_uri).scheme not in ("http", "https"):  # a database sends nothing
        raise RegistryError(
            f"the registry at {shown(registry.tracking_uri)} is no tracking server, and only one sends webhooks: set "
            "MLFLOW_TRACKING_URI to an address of `mlflow server`, or leave it to the service, which polls"
        )
    return registry.asking(failed)


def _webhooks(client: Any, system: str, url: str) -> list[Any]:
    present = all_pages(lambda token: client.list_webhooks(max_results=100, page_token=token))
    return [webhook for webhook in present if webhook.name == _name(system, url)]


def _name(system: str, url: str) -> str:
    return f"pliant-{system}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
