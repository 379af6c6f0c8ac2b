"""A service's log is text, or JSON where a setting says so: an object a line, with the request's id and without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.redaction import redact
from pliant.serving.monitoring import logs
from pliant.serving.request_context import REQUEST_ID, TENANT
from pliant.serving.workers.child_process import spawn
from tests.fixtures.places import ROOT


def record(message: object = "it is so", *args: object, **extra: object) -> logging.LogRecord:
    entry = logging.LogRecord("pliant.serving", logging.WARNING, "file.py", 7, message, args, None)
    entry.__dict__.update(extra)
    return entry


def written(*arguments: object, **extra: object) -> dict:
    line = logs.JsonLines().format(record(*arguments, **extra))
    assert "\n" not in line and line.isascii()
    return json.loads(line)


def test_a_line_has_time_level_logger_message_and_process_and_the_fields_that_are_not_others_texts():
    at = datetime(2026, 2, 3, 4, 5, 6, 789_000, UTC)
    others = {
        "component": "[x]",
        "trace_msg": "",
        "levelname_bracketed": "[W]",
        "request_id": None,
        "service_name": "x",
    }
    line = written("%d of %s", 3, "four", created=at.timestamp(), release=7, **others)
    assert line == {
        "time": "2026-02-03T04:05:06.789+00:00",
        "level": "WARNING",
        "logger": "pliant.serving",
        "message": "3 of four",
        "process": os.getpid(),
        "release": 7,
    }
    assert list(line)[:5] == ["time", "level", "logger", "message", "process"]
    assert "odd" in written(odd={1, 2}) and written(stack_info="Stack ...")["stack"] == "Stack ..."


def test_secrets_are_masked_in_every_text():
    line = written("see http://ann:mother@here/", exc_text="KeyError: token=geheim", address="http://ann:mother@here/")
    assert (line["message"], line["address"]) == ("see http://***@here/", "http://***@here/")
    assert line["exception"] == "KeyError: token=***"


@given(st.text())
def test_any_message_is_one_line_that_gives_the_message_back(message):
    assert written(message)["message"] == redact(message)


async def test_the_request_and_its_tenant_are_named_while_it_is_handled_and_by_what_it_starts():
    seen = {}

    async def later(name):
        await asyncio.sleep(0)
        seen[name] = written()

    async def handle(name, tenant):
        REQUEST_ID.set(name)
        TENANT.set(tenant)
        await asyncio.create_task(later(name))

    await asyncio.gather(handle("a", "ann"), handle("b", ""))
    seen["outside"] = written()
    assert (seen["a"]["request_id"], seen["a"]["tenant"]) == ("a", "ann")
    assert seen["b"]["request_id"] == "b" and "tenant" not in seen["b"]
    assert not {"request_id", "tenant"} & set(seen["outside"])


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
