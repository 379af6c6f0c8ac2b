"""A service's log is text, or JSON where a setting says so: an object a line, with the request's id and without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.redaction import redact
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.client import Client
from pliant.serving.http.access.access import AccessMiddleware
from pliant.serving.http.middleware import RequestIdMiddleware
from pliant.serving.monitoring import logs
from pliant.serving.monitoring.json_lines import JsonLines
from pliant.serving.request_context import request_fields, set_request_id, set_request_tenant
from pliant.serving.settings import from_environment, to_environment
from pliant.serving.workers.child_process import spawn
from tests.fixtures.places import ROOT


def record(message: object = "it is so", *args: object, **extra: object) -> logging.LogRecord:
    entry = logging.LogRecord("pliant.serving", logging.WARNING, "file.py", 7, message, args, None)
    entry.__dict__.update(extra)
    return entry


def written(*arguments: object, **extra: object) -> dict:
    line = JsonLines().format(record(*arguments, **extra))
    assert "\n" not in line and line.isascii()
    return json.loads(line)


def test_a_line_has_time_level_logger_message_and_process_in_this_order():
    at = datetime(2026, 2, 3, 4, 5, 6, 789_000, UTC)
    line = written("%d of %s", 3, "four", created=at.timestamp())
    assert line == {
        "time": "2026-02-03T04:05:06.789+00:00",
        "level": "WARNING",
        "logger": "pliant.serving",
        "message": "3 of four",
        "process": os.getpid(),
    }
    assert list(line) == ["time", "level", "logger", "message", "process"]


def test_an_exception_is_a_field_also_where_it_is_text_already():
    try:
        raise ValueError("no such thing")
    except ValueError:
        line = written(exc_info=sys.exc_info())
    assert line["exception"].startswith("Traceback") and line["exception"].endswith("ValueError: no such thing")
    assert written(exc_text="Traceback ...")["exception"] == "Traceback ..."
    assert written(stack_info="Stack ...")["stack"] == "Stack ..."


def test_fields_of_a_record_come_along_but_for_those_that_others_make_for_their_own_texts():
    others = {
        "component": "[x]",
        "trace_msg": "",
        "levelname_bracketed": "[W]",
        "request_id": None,
        "service_name": "x",
    }
    line = written(release=7, seconds=0.5, odd={1, 2}, **others)
    assert (line["release"], line["seconds"]) == (7, 0.5) and "odd" in line
    assert not set(others) & set(line)


def test_secrets_are_masked_in_every_text():
    line = written("see http://ann:mother@here/", exc_text="KeyError: token=geheim", address="http://ann:mother@here/")
    assert (line["message"], line["address"]) == ("see http://***@here/", "http://***@here/")
    assert "mother" not in json.dumps(line) and "geheim" not in json.dumps(line)


@given(st.text())
def test_any_message_is_one_line_that_gives_the_message_back(message):
    assert written(message)["message"] == redact(message)


def test_the_request_and_its_tenant_are_named_while_it_is_handled_and_by_what_it_starts():
    seen = {}

    async def later(name):
        await asyncio.sleep(0)
        seen[name] = written()

    async def handle(name, tenant):
        set_request_id(name)
        set_request_tenant(tenant)
        await asyncio.create_task(later(name))

    async def main():
        await asyncio.gather(handle("a", "ann"), handle("b", ""))
        seen["outside"] = written()

    asyncio.run(main())
    assert (seen["a"]["request_id"], seen["a"]["tenant"]) == ("a", "ann")
    assert seen["b"]["request_id"] == "b" and "tenant" not in seen["b"]
    assert not {"request_id", "tenant"} & set(seen["outside"])


def test_the_middlewares_note_the_id_that_the_answer_has_and_the_tenant_of_the_key():
    fields = {}

    async def app(scope, receive, send):
        fields.update(request_fields())

    async def nothing(*_):
        pass

    gate = SimpleNamespace(
        access=SimpleNamespace(judge=lambda scope: Client("ann"), tenant=lambda name: None),
        limits=SimpleNamespace(enter=lambda *_: None, leave=lambda _: None, waiting={"ann": 0}),
        metrics=SimpleNamespace(arrived=lambda _: None, waiting=lambda *_: None),
        clock=lambda: 0.0,
    )
    hosted = RequestIdMiddleware(AccessMiddleware(app, SimpleNamespace(gate=gate)))
    scope = {"type": "http", "path": "/v1/predict", "method": "POST", "headers": [(b"x-request-id", b"seven")]}
    asyncio.run(hosted(scope, nothing, nothing))
    assert fields == {"request_id": "seven", "tenant": "ann"}


def test_the_log_is_text_unless_the_environment_says_otherwise(monkeypatch):
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.root, "handlers", [handler])
    hooks = sys.excepthook
    for environment in ({}, {"PLIANT_LOG_FORMAT": "text"}):
        logs.install(environment)
        assert handler.formatter is None and sys.excepthook is hooks


def run(form: str) -> list[str]:
    """Return the lines of a process that writes all there is, and check that it ended by its exception."""
    command = [sys.executable, "-W", "always", "-m", "tests.serving.monitoring.logging_processes"]
    environment = {**os.environ, "PLIANT_LOG_FORMAT": form}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (1, "")
    assert "geheim" not in result.stderr and "mother" not in result.stderr
    return result.stderr.splitlines()


def test_all_that_a_process_writes_is_json_whoever_writes_it():
    lines = [json.loads(line) for line in run("json")]
    assert [(line["logger"], line["level"]) for line in lines] == [
        ("pliant.serving", "WARNING"),
        ("a.library", "ERROR"),
        ("a.library", "ERROR"),
        ("py.warnings", "WARNING"),
        ("pliant.serving", "CRITICAL"),
        ("pliant.serving", "CRITICAL"),
    ]
    assert [line["message"] for line in lines[:3]] == ["refresh: http://***@here/", "two\nlines", "it failed"]
    assert "that is old" in lines[3]["message"]
    errors = [line["exception"].splitlines()[-1] for line in (lines[2], *lines[4:])]
    assert errors == ["ValueError: token=***", "ZeroDivisionError: division by zero", "RuntimeError: password=***"]


def test_without_the_setting_all_of_it_is_text():
    lines = run("text")
    assert lines[0] == "refresh: http://***@here/" and "Traceback (most recent call last):" in lines


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_device_process_writes_in_the_form_of_its_service(form, monkeypatch, capfd):
    monkeypatch.setenv("PLIANT_LOG_FORMAT", form)
    channel, process = spawn("tests.serving.monitoring.logging_processes:child")
    with channel:
        assert process.wait(60) == 0
    text = capfd.readouterr().err
    if form == "text":
        assert text.startswith("the engine's process ends: ")
    else:
        line = json.loads(text)
        assert (line["logger"], line["level"]) == ("pliant.device", "ERROR")
        assert (line["message"], line["process"]) == ("the engine's process ends: token=***", process.pid)


def test_the_form_is_a_setting_that_reaches_the_service():
    settings = from_environment({"PLIANT_LOG_FORMAT": "json"}, BinsSettings)
    assert settings.log_format == "json" and BinsSettings().log_format == "text"
    assert to_environment(settings)[logs.VARIABLE] == "json"
    with pytest.raises(InputError, match="PLIANT_LOG_FORMAT is 'xml', but must be one of text, json"):
        from_environment({"PLIANT_LOG_FORMAT": "xml"}, BinsSettings)
