"""`pliant ui`: what it finds, what it refuses, and its page of all services."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict
from types import SimpleNamespace

import httpx
import pytest

import pliant.serving.launch
from pliant.cli import ui
from pliant.cli.main import main
from pliant.errors import UnreachableError
from pliant.flows import servers, settings, status
from pliant.flows.release import open_registry
from pliant.serving.launch import RECORD, KnownService

ADDRESSES = ui.Addresses("http://127.0.0.1:1/<m>", "http://127.0.0.1:2", "http://127.0.0.1:3")


@pytest.fixture
def page(here, monkeypatch):
    """The address of the page in a folder of two services of tokens that run, and one of bins whose process has ended."""

    def live(_project, system):
        if system == "packing":
            raise UnreachableError("the registry does not answer <now>")
        return SimpleNamespace(number=7, since="2026-11-30T10:00:00+00:00") if system in ("tokens", "bins") else None

    monkeypatch.setattr(status, "live", live)
    monkeypatch.setattr(pliant.serving.launch, "is_ready", lambda url: url.endswith(":11"))
    project = settings.read()
    for port, system, pid in ((11, "tokens", os.getpid()), (12, "tokens", os.getpid()), (13, "bins", 2**22 + 1)):
        folder = project.home / f"bentoml-{port}"
        folder.mkdir(parents=True)
        (folder / RECORD).write_text(json.dumps(asdict(KnownService(system, f"http://127.0.0.1:{port}", pid))))
    port = servers.free_port()
    with ui.house(project, ADDRESSES, port):
        yield f"http://127.0.0.1:{port}"


def test_the_page_shows_to_this_machine_each_system_its_release_and_the_services_that_run(page):
    answer = httpx.get(page)
    rows = [row for row in answer.text.split("<tr>") if 'scope="row"' in row]
    assert "7, since 2026-11-30 10:00 UTC" in rows[0] and ":11</a>" in rows[0] and "ready" in rows[0]
    assert ":12</a>" in rows[1] and "does not answer yet" in rows[1]
    assert ":13" not in answer.text and "pliant serve bins" in rows[2] and "pliant train cascade" in rows[3]
    assert "does not answer &lt;now&gt;" in rows[4] and len(rows) == 5
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "{{" not in answer.text and "1/&lt;m&gt;" in answer.text and "<script" not in answer.text
    assert httpx.get(page, headers={"host": "evil.example:80"}).status_code == 421
    assert httpx.get(f"{page}/other").status_code == 404


def test_what_runs_is_found_and_without_it_or_a_registry_a_sentence_says_what_to_do(here, capsys, monkeypatch):
    assert main(["ui"]) == 2
    assert "must be a registry that exists: run `pliant demo`" in capsys.readouterr().err
    up = {f"{ADDRESSES.mlflow}/health", f"{ADDRESSES.prefect}/api/health", f"{ADDRESSES.house}/health"}
    monkeypatch.setattr(servers, "answers", up.__contains__)
    project = settings.read()
    (project.home / ui.FILE).write_text(json.dumps(asdict(ADDRESSES)))
    assert main(["ui"]) == 0
    assert str(ADDRESSES) in capsys.readouterr().out and ui.noted(project) == ADDRESSES
    up.pop()
    assert ui.noted(project) is None


def test_traces_go_into_the_experiment_of_their_system_unless_somebody_says_otherwise(here, monkeypatch):
    project = settings.read()
    assert ui.may_trace(project)
    for system in ("tokens", "bins"):
        open_registry(project, system).create()
    said = [ui.collector(project, system, ADDRESSES) for system in ("tokens", "bins")]
    assert [each[ui.COLLECTOR] for each in said] == [ADDRESSES.mlflow] * 2
    names = [f"{open_registry(project, system).experiment}" for system in ("tokens", "bins")]
    client = open_registry(project, "tokens").connect()
    ids = [client.get_experiment_by_name(name).experiment_id for name in names]
    assert [each[ui.HEADERS_SENT] for each in said] == [f"x-mlflow-experiment-id={id}" for id in ids]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert not ui.may_trace(settings.read())
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv(f"{ui.EXPORTER}TRACES_ENDPOINT", "http://127.0.0.1:8")
    assert not ui.may_trace(settings.read())


def test_a_port_that_is_taken_is_named(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setitem(servers.PORTS, "MLflow", other.getsockname()[1])
        port = servers.usual_port("MLflow")
    assert capsys.readouterr().err == f"port {servers.PORTS['MLflow']} is taken, so MLflow has port {port}\n"
