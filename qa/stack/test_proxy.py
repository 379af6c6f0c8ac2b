"""nginx.conf, run by a real nginx before a service that says what reached it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pliant import systems
from pliant.serving.settings import Settings
from qa.stack.servers import installed
from qa.stack.servers import proxy as running_proxy
from tests.fixtures.certificate import certificate

SYSTEMS = systems.names()
NAMES = (*SYSTEMS, "grafana", "mlflow", "prefect-server")


class Handler(BaseHTTPRequestHandler):
    """Answers with what reached it. `/v1/stream` sends its second piece once the server's `first_seen` is set."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append(self.path)
        self.send_response(200)
        if self.path == "/v1/stream":
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            self.wfile.flush()
            if self.server.first_seen.wait(10):
                self.wfile.write(b"data: second\n\n")
            return
        request = {"path": self.path, "method": self.command, "bytes": len(body)}
        answer = json.dumps({**request, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *arguments):
        pass


@dataclass(frozen=True)
class Proxy:
    """`ports`: of the configuration -> here. What is behind each is the same upstream."""

    ports: Mapping[int, int]
    upstream: ThreadingHTTPServer

    def call(self, path, method="GET", body=None, headers=(), port=8443, tls=True):
        """Return status and answer of one request, whose path is sent as it is; the upstream's answer as a dictionary."""
        with closing(self.connect(port, tls)) as connection:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            text = response.read()
        return response.status, json.loads(text) if text.startswith(b"{") else text

    def connect(self, port, tls=True):
        if not tls:
            return http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=10)
        anything = ssl._create_unverified_context()
        return http.client.HTTPSConnection("127.0.0.1", self.ports[port], timeout=10, context=anything)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    installed("nginx")
    folder = tmp_path_factory.mktemp("proxy")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as upstream:
        upstream.seen, upstream.first_seen = [], threading.Event()
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        upstreams = dict.fromkeys(NAMES, f"127.0.0.1:{upstream.server_address[1]}")
        with running_proxy(folder, upstreams, certificate(folder / "tls"), "operators:{PLAIN}open") as given:
            yield Proxy(given.ports, upstream)
        upstream.shutdown()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_request_reaches_its_endpoint_without_the_prefix_and_with_what_it_brought(proxy, system):
    sent = {
        "authorization": "Bearer pliant_12345678_x",
        "x-request-id": "mine",
        "x-pliant-deadline": "0.5",
        "x-forwarded-for": "127.0.0.1, 10.9.8.7",
    }
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    status, answer = proxy.call(f"/{system}/v1/predict%20x?a=b%2Fc", "POST", b"{}", {**sent, **trace})
    assert (status, answer["method"], answer["path"], answer["bytes"]) == (200, "POST", "/v1/predict%20x?a=b%2Fc", 2)
    received = answer["headers"]
    assert {name: received[name] for name in sent if name != "x-forwarded-for"} == {
        name: value for name, value in sent.items() if name != "x-forwarded-for"
    }
    assert received["x-forwarded-for"] == "127.0.0.1"  # the client's own address, not what it claims
    assert received["x-forwarded-proto"] == "https"
    assert not set(trace) & set(received)  # who is outside does not decide what is traced


def test_what_a_client_does_not_send_is_not_made_up(proxy):
    _, answer = proxy.call("/tokens/v1/tasks")
    assert not {"x-request-id", "traceparent", "tracestate", "authorization"} & set(answer["headers"])


@pytest.mark.parametrize(
    "path",
    [
        "/tokens/metrics",
        "/bins/metrics",
        "/bins/metrics?x=1",
        "/cascade/metrics/",
        "/packing//metrics",
        "/packing/%6detrics",
        "/tokens/v1/../metrics",
        "/tokens/v1/registry-events",
        "/bins/registry-events",
        "/metrics",
        "/",
        "/tokensmetrics",
    ],
)
def test_metrics_and_webhooks_are_not_reached_from_outside(proxy, path):
    before = len(proxy.upstream.seen)
    status, _ = proxy.call(path, "POST", b"")
    assert status == 404
    assert len(proxy.upstream.seen) == before


def test_each_piece_of_a_stream_is_passed_at_once(proxy):
    connection = proxy.connect(8443)
    connection.request("POST", "/packing/v1/stream", b"{}")
    response = connection.getresponse()
    assert response.readline() == b"data: first\n"  # the second is not sent before this was read
    proxy.upstream.first_seen.set()
    assert response.read() == b"\ndata: second\n\n"
    connection.close()


def test_a_body_may_be_as_large_as_the_service_takes_and_no_larger(proxy):
    most = Settings.model_fields["max_body_bytes"].default
    status, answer = proxy.call("/bins/embed", "POST", b"x" * most)
    assert (status, answer["bytes"]) == (200, most)
    status, _ = proxy.call("/bins/embed", "POST", b"", {"content-length": str(most + 1)})
    assert status == 413


def test_operators_need_their_password_and_a_name(proxy):
    good = {"authorization": "Basic " + base64.b64encode(b"operators:open").decode()}
    for name in ("grafana", "mlflow", "prefect"):
        host = {"host": f"{name}.localhost:8444"}
        assert proxy.call("/", headers=host, port=8444)[0] == 401
        status, answer = proxy.call("/", headers={**host, **good}, port=8444)
        assert status == 200
        assert "authorization" not in answer["headers"]  # it is the proxy's, and no business of the page's
    assert proxy.call("/", headers={"host": "localhost", **good}, port=8444)[0] == 404


def test_endpoints_can_send_events_to_prefect_and_do_nothing_else_there(proxy):
    status, answer = proxy.call("/api/events", "POST", b"[]", port=4280, tls=False)
    assert (status, answer["path"]) == (200, "/api/events")
    assert proxy.call("/api/events", port=4280, tls=False)[0] == 403
    for path in ("/api/deployments/filter", "/api/events/filter", "/api/admin/settings", "/"):
        assert proxy.call(path, "POST", b"{}", port=4280, tls=False)[0] == 404


def test_the_health_check_answers(proxy):
    assert proxy.call("/healthz", port=8080, tls=False) == (204, b"")
