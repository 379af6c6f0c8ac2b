"""nginx.conf, run by a real nginx before a service that says what reached it. NGINX names an nginx not on PATH."""

from __future__ import annotations

import ast
import base64
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows.servers import free_port
from serving.settings import Settings
from tests.deploy.stack import SYSTEMS, check_settings, nginx_text, nginx_values, services
from tests.fixtures.places import ROOT

UPSTREAMS = (*(f"{system}:3000" for system in SYSTEMS), "grafana:3000", "mlflow:5000", "prefect-server:4200")
PASSWORD = "operators:{PLAIN}open"


@dataclass
class Upstream:
    """A service that answers with what reached it. `/v1/stream` sends its second piece once `first_seen` is set."""

    seen: list[str] = field(default_factory=list)
    first_seen: threading.Event = field(default_factory=threading.Event)

    def start(self):
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.do_POST()

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                upstream.seen.append(self.path)
                if self.path == "/v1/stream":
                    self.stream()
                    return
                request = {"path": self.path, "method": self.command, "bytes": len(body)}
                answer = json.dumps({**request, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def stream(self):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(b"data: first\n\n")
                self.wfile.flush()
                if upstream.first_seen.wait(10):
                    self.wfile.write(b"data: second\n\n")

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


@dataclass(frozen=True)
class Proxy:
    clients: int
    operators: int
    events: int
    health: int
    upstream: Upstream

    def call(self, path, method="GET", body=None, headers=(), port=None, tls=True):
        """Return status and answer of one request; the answer of the upstream as a dictionary."""
        connection = self.connect(port or self.clients, tls)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if text.startswith(b"{") else text

    def connect(self, port, tls=True):
        if not tls:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)


def nginx():
    path = os.environ.get("NGINX") or shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not path:
        pytest.skip("nginx is not here: install it, or name it in NGINX")
    return path


def certificate(folder):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not here")
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    files = ["-subj", "/CN=localhost", "-keyout", str(folder / "tls_key"), "-out", str(folder / "tls_certificate")]
    subprocess.run(["openssl", *command, *files], check=True, capture_output=True)
    (folder / "operators").write_text(PASSWORD + "\n")


def configuration(folder, ports, upstream):
    """Return the configuration with this folder for its files, these ports, and the upstream for every service."""
    text = nginx_text().replace("/tmp/", f"{folder}/").replace("/run/secrets/", f"{folder}/")
    text = text.replace("/dev/stdout", f"{folder}/access.log").replace("/dev/stderr", f"{folder}/error.log")
    text = text.replace("listen 127.0.0.1:8080", "listen 8080")
    for listened, port in ports.items():
        text = re.sub(rf"listen {listened}\b", f"listen 127.0.0.1:{port}", text)
    for name in UPSTREAMS:
        assert f"set $upstream {name};" in text
        text = text.replace(f"set $upstream {name};", f"set $upstream {upstream};")
    return text


def command(path, folder):
    user = "user root; " if os.getuid() == 0 else ""
    return [path, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", f"{user}daemon off;"]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    path, folder = nginx(), tmp_path_factory.mktemp("proxy")
    certificate(folder)
    upstream = Upstream()
    server = upstream.start()
    ports = {listened: free_port() for listened in (8443, 8444, 4280, 8080)}
    address = f"127.0.0.1:{server.server_address[1]}"
    (folder / "nginx.conf").write_text(configuration(folder, ports, address))
    process = subprocess.Popen(command(path, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(ports[8080], process, folder)
        yield Proxy(ports[8443], ports[8444], ports[4280], ports[8080], upstream)
    finally:
        process.terminate()
        process.wait(10)
        server.shutdown()
        server.server_close()


def wait(port, process, folder):
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    pytest.fail(f"nginx does not listen: {(folder / 'error.log').read_text()}")


def test_nginx_accepts_the_configuration(tmp_path):
    path = nginx()
    certificate(tmp_path)
    ports = {listened: free_port() for listened in (8443, 8444, 4280, 8080)}
    # With the names of services as they are: they are looked up when a request needs them, so it starts without them.
    text = configuration(tmp_path, ports, "tokens:3000")
    (tmp_path / "nginx.conf").write_text(text)
    result = subprocess.run([*command(path, tmp_path), "-t"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "[warn]" not in result.stderr.replace('the "user" directive', "")


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
    connection = proxy.connect(proxy.clients)
    connection.request("POST", "/packing/v1/stream", b"{}")
    response = connection.getresponse()
    assert response.readline() == b"data: first\n"  # the second is not sent before this was read
    proxy.upstream.first_seen.set()
    assert response.read() == b"\ndata: second\n\n"
    connection.close()


def test_a_body_may_be_as_large_as_the_service_takes_and_no_larger(proxy):
    most = Settings.__dataclass_fields__["max_body_bytes"].default
    status, answer = proxy.call("/bins/embed", "POST", b"x" * most)
    assert (status, answer["bytes"]) == (200, most)
    status, _ = proxy.call("/bins/embed", "POST", b"", {"content-length": str(most + 1)})
    assert status == 413


def test_operators_need_their_password_and_a_name(proxy):
    good = {"authorization": "Basic " + base64.b64encode(b"operators:open").decode()}
    for name in ("grafana", "mlflow", "prefect"):
        host = {"host": f"{name}.localhost:8444"}
        assert proxy.call("/", headers=host, port=proxy.operators)[0] == 401
        status, answer = proxy.call("/", headers={**host, **good}, port=proxy.operators)
        assert status == 200
        assert "authorization" not in answer["headers"]  # it is the proxy's, and no business of the page's
    assert proxy.call("/", headers={"host": "localhost", **good}, port=proxy.operators)[0] == 404


def test_endpoints_can_send_events_to_prefect_and_do_nothing_else_there(proxy):
    status, answer = proxy.call("/api/events", "POST", b"[]", port=proxy.events, tls=False)
    assert (status, answer["path"]) == (200, "/api/events")
    assert proxy.call("/api/events", port=proxy.events, tls=False)[0] == 403
    for path in ("/api/deployments/filter", "/api/events/filter", "/api/admin/settings", "/"):
        assert proxy.call(path, "POST", b"{}", port=proxy.events, tls=False)[0] == 404


def test_the_door_for_events_is_the_address_that_endpoints_have():
    for system in SYSTEMS:
        assert services()[system]["environment"]["PREFECT_API_URL"] == "http://proxy:4280/api"
    assert "4280" in nginx_values("listen")


def test_the_health_check_answers(proxy):
    assert proxy.call("/healthz", port=proxy.health, tls=False) == (204, b"")


def test_a_body_may_be_as_large_at_the_proxy_as_at_the_services():
    first, *_ = nginx_values("client_max_body_size")
    assert first == "10m"
    for system in SYSTEMS:
        assert check_settings(system, services()[system]["environment"]).max_body_bytes == 10 * 1024**2


def timeout_of(system):
    tree = ast.parse((ROOT / "serving" / system / "service.py").read_text(encoding="utf-8"))
    (value,) = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TIMEOUT"
    ]
    return ast.literal_eval(value)


def test_the_proxy_waits_for_an_answer_as_long_as_the_service_takes():
    usual, packing = (int(value.removesuffix("s")) for value in nginx_values("proxy_read_timeout"))
    assert {timeout_of(system) for system in SYSTEMS if system != "packing"} == {usual}
    assert timeout_of("packing") == packing


def test_tls_is_of_this_decade():
    assert nginx_values("ssl_protocols") == ["TLSv1.2 TLSv1.3"]
    assert nginx_values("ssl_session_tickets") == ["off"]
    assert all("ssl" in value for value in nginx_values("listen") if value.startswith("84"))
