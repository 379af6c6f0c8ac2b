"""Real services: keys over HTTPS on all addresses, and one that was started without our command and without keys."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
from contextlib import contextmanager

import psutil
import pytest

from pliant.serving.http.access.keys import update_keys
from pliant.serving.launch import Service, _environment, absolute
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.certificate import make_certificate
from tests.fixtures.clients import PATIENCE, free_port, wait_for
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


@contextmanager
def started_without_our_command(folder):
    """`bentoml serve` as it listens by default: on all addresses."""
    settings, port = absolute(settings_for(folder)), free_port()
    home = folder / "state" / "plain"
    home.mkdir(parents=True, exist_ok=True)
    command = [".venv/bin/python", "-m", "bentoml", "serve", "pliant.serving.bins.service:BinsService"]
    with (folder / "plain.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--host", "0.0.0.0", "--port", str(port)],
            env=_environment(settings, home, os.environ),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    service = Service(process, f"http://127.0.0.1:{port}", folder / "plain.log")
    try:
        service.wait_until_ready(PATIENCE)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def other_address() -> str | None:
    """Return an address of this machine that others can reach, if it has one."""
    addresses = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET
    ]
    return next((address for address in addresses if not address.startswith("127.")), None)


def test_a_service_without_keys_that_listens_on_all_addresses_answers_its_own_machine_alone(folder):
    address = other_address()
    with started_without_our_command(folder) as port:
        local = lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)  # noqa: E731
        assert ask(local())[0] == 200
        assert ask(local(), "GET", "/metrics")[0] == 200
        assert ask(local(), host="evil.example")[0] == 421
        assert ask(local(), "POST", "/refresh", **{"content-type": "text/plain"})[0] == 415
        # Nobody is trusted to say who asks: not even a process of this machine.
        assert ask(local(), **{"x-forwarded-for": "10.1.2.3"})[0] == 200
        if address is None:
            pytest.skip("this machine has no address besides 127.0.0.1")
        distant = lambda: http.client.HTTPConnection(address, port, timeout=PATIENCE)  # noqa: E731
        assert ask(distant(), "GET", "/livez")[0] == 200
        for headers in ({}, {"host": "localhost"}, {"host": "localhost", "x-forwarded-for": "127.0.0.1"}):
            assert ask(distant(), **headers)[0] in (403, 421)
        status, content = ask(distant(), host="localhost")
        assert (status, b"this service has no keys" in content) == (403, True)
        assert ask(distant(), "GET", "/status", host="localhost")[0] == 403
