"""`pliant ui`: what it finds, what it refuses, and its page of all services. Its servers are started by the demo's test."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace

import httpx
import pytest

import pliant.serving.launch
from pliant.cli import ui
from pliant.cli.main import main
from pliant.errors import UnreachableError
from pliant.flows import servers, settings, status
from pliant.serving.launch import RECORD, KnownService

ADDRESSES = ui.Addresses("http://127.0.0.1:1/<m>", "http://127.0.0.1:2", "http://127.0.0.1:3")


def start(project, name: str, service: KnownService) -> None:
    folder = project.home / name
    folder.mkdir(parents=True)
    (folder / RECORD).write_text(json.dumps(asdict(service)))


@pytest.fixture
def page(here, monkeypatch):
    """The address of the page in a folder with a live release of tokens, one that runs, and one whose process has ended."""

    def live(_project, system):
        if system == "packing":
            raise UnreachableError("the registry does not answer <now>")
        return SimpleNamespace(number=7, since="2026-11-30T10:00:00+00:00") if system in ("tokens", "bins") else None

    monkeypatch.setattr(status, "live", live)
    monkeypatch.setattr(pliant.serving.launch, "is_ready", lambda url: url.endswith(":11"))
    project = settings.read()
    start(project, "bentoml-11", KnownService("tokens", "http://127.0.0.1:11", os.getpid()))
    start(project, "bentoml-12", KnownService("tokens", "http://127.0.0.1:12", os.getpid()))
    start(project, "bentoml-13", KnownService("bins", "http://127.0.0.1:13", 2**22 + 1))
    (project.home / "bentoml-13" / ".other").write_text("{")
    port = servers.free_port()
    with ui.house(project, ADDRESSES, port):
        yield f"http://127.0.0.1:{port}"


def test_the_page_shows_each_system_its_release_and_the_services_that_run(page):
    answer = httpx.get(page)
    rows = [row for row in answer.text.split("<tr>") if 'scope="row"' in row]
    assert len(rows) == 5
    assert "7, since 2026-11-30 10:00" in rows[0] and ":11</a>" in rows[0] and "ready" in rows[0]
    assert ":12</a>" in rows[1] and "does not answer yet" in rows[1]
    assert ":13" not in answer.text and "pliant serve bins" in rows[2] and "pliant train cascade" in rows[3]
    assert "does not answer &lt;now&gt;" in rows[4]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "{{" not in answer.text and "1/&lt;m&gt;" in answer.text and "<script" not in answer.text


def test_the_page_is_for_this_machine_under_its_own_names_alone(page):
    assert httpx.get(page, headers={"host": "evil.example:80"}).status_code == 421
    assert httpx.get(f"{page}/other").status_code == 404
    assert httpx.get(f"{page}/health").content == b""


def test_without_a_registry_nothing_is_started(here, capsys):
    assert main(["ui"]) == 2
    assert "must be a registry that exists: run `pliant demo`" in capsys.readouterr().err
    assert ui.hint(settings.read()).startswith("`pliant ui`")


def test_what_runs_already_is_found_and_what_has_ended_is_not(here, capsys):
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_values: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url, home = f"http://127.0.0.1:{server.server_port}", settings.read().home
        home.mkdir()
        (home / ui.FILE).write_text(json.dumps(asdict(ui.Addresses(url, url, url))))
        assert main(["ui"]) == 0
        assert f"Prefect   {url}" in capsys.readouterr().out
        assert ui.hint(settings.read()) == str(ui.Addresses(url, url, url))
        server.shutdown()
    assert ui.noted(settings.read()) is None


def test_a_port_that_is_taken_is_named(monkeypatch, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setitem(ui.PORTS, "MLflow", other.getsockname()[1])
        port = ui.free("MLflow")
    assert capsys.readouterr().err == f"pliant: port {ui.PORTS['MLflow']} is taken, so MLflow has port {port}\n"
