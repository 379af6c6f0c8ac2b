"""Real services: keys over HTTPS on all addresses, and one that was started without our command and without keys."""

from __future__ import annotations

import http.client
import ssl

import pytest

from pliant.serving.http.access.keys import update_keys
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.certificate import make_certificate
from tests.fixtures.clients import PATIENCE, wait_for
from tests.fixtures.live import running
from tests.serving.http.access.test_keys import AT, with_new

pytestmark = pytest.mark.slow
BODY = b'{"inputs": "a dog"}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    publish_tiny(MlflowPublisher(folder), "colours")
    return folder


def ask(connection, method: str = "POST", path: str = "/predict", key: str = "", **headers: str):
    """Return status and body."""
    names = {"content-type": "application/json", **headers}
    if key:
        names["authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, BODY if method == "POST" else None, names)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_keys_over_https_open_a_service_on_all_addresses_until_they_are_revoked(folder):
    certificate, private = make_certificate(folder)
    keys = folder / "keys.json"
    secret, key = update_keys(keys, with_new)
    settings = settings_for(folder, host="0.0.0.0", tls_cert=certificate, tls_key=private, keys_file=keys)
    with running(settings, folder) as service:
        assert service.url.startswith("https://127.0.0.1:")
        address, context = service.url.removeprefix("https://"), ssl.create_default_context(cafile=certificate)
        https = lambda: http.client.HTTPSConnection(address, timeout=PATIENCE, context=context)  # noqa: E731
        for path in ("/readyz", "/v2/health/ready", "/v2/health/live"):
            assert ask(https(), "GET", path)[0] == 200
        for path in ("/predict", "/refresh", "/v1/embeddings", "/v2/models/colours/infer"):
            assert ask(https(), path=path)[0] == 401
        for path in ("/metrics", "/status", "/docs", "/", "/schema.json", "/openapi.json"):
            assert ask(https(), "GET", path)[0] == 401
        assert ask(https(), key=secret)[0] == 200
        assert ask(https(), "POST", "/refresh", secret)[0] == 403
        assert ask(https(), "GET", "/metrics", secret)[0] == 403
        assert ask(https(), key=secret, host="evil.example")[0] == 421
        update_keys(keys, lambda known: (known.revoked(key.id, AT), None))
        wait_for(lambda: ask(https(), key=secret)[0] == 401, 10)
        update_keys(keys, lambda known: with_new(known, roles=("admin",)))
        log = (folder / "serve.log").read_text()
        assert secret not in log and secret.rpartition("_")[2] not in log
