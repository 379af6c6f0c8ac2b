"""Small things over HTTP: strange charsets, OpenAPI pages, wrong methods, Retry-After, a file's mode, names of tasks."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import time
from collections.abc import Iterator

import jsonschema_rs
import pytest
import schemathesis

from pliant.errors import InputError
from pliant.flows import config
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.serving.packing.engine.observed import observed_path
from qa.grounds import GROUNDS, served
from qa.targets import Targets, exchange, say, under_attack
from tests.fixtures.clients import call, wait_for
from tests.fixtures.live import ConcurrentCalls, go_on, processes
from tests.fixtures.packing.published import NAME

TOKENS, BINS, PACKING = GROUNDS["tokens"], GROUNDS["bins"], GROUNDS["packing"]
CHARSETS = (
    "undefined",
    "punycode",
    "idna",
    "rot13",
    "base64",
    "zip",
    "utf-16",
    "utf-7",
    "mbcs",
    "none",
    "x" * 900,
    "\xff",
)
"""Of which Python knows some as anything but a way to write letters."""
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
NAMES = ("../up", "a/b", "a b", ".hidden", "-front", "", "a\n", "a\0b", "é", "..", "encoder/x", "%2e%2e")
PART = '--b\r\ncontent-disposition: form-data; name="task-\xe9"\r\n'
FORM = (PART + "{}\r\ndigits\r\n--b--\r\n").encode("latin-1")


def strange_forms() -> Iterator[tuple[bytes, str]]:
    """Yield forms with their content types: the charset of the whole, and that of a part."""
    for charset in CHARSETS:
        yield FORM.replace(b"{}", b""), f"multipart/form-data; boundary=b; charset={charset}"
        part = f"content-type: text/plain; charset={charset}\r\n".encode("latin-1")
        yield FORM.replace(b"{}", part), "multipart/form-data; boundary=b"


def send_strange_forms(url: str) -> None:
    for body, kind in strange_forms():
        status = 503
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _, content = exchange(url, "POST", TOKENS.path, body, {"content-type": kind})
        assert 400 <= status < 500 or status == 503, f"{status} for {kind[:80]}: {content[:200]!r}"
        time.sleep(0.005)


def use_wrong_methods(url: str) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        status, headers = 503, {}
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, headers, _ = exchange(url, method, TOKENS.path)
        assert status == 503 or (status == 405 and headers["allow"] == "POST"), f"{status} {headers}"
        time.sleep(0.005)


@pytest.mark.parametrize("attack", [send_strange_forms, use_wrong_methods])
def test_strange_requests(tokens, attack):
    under_attack(tokens, ("POST", TOKENS.path, TOKENS.body), [attack], f"09 {attack.__name__.replace('_', ' ')}")


def test_strange_charsets_are_errors_of_the_client(tokens):
    targets, failures = Targets("09 charsets of forms"), []
    forms = list(strange_forms())
    for body, kind in forms:
        status, _, content = exchange(tokens.url, "POST", TOKENS.path, body, {"content-type": kind})
        failures += [] if 400 <= status < 500 else [(status, kind[:80], content[:200])]
    say(f"{len(forms)} forms; {failures[:3]}")
    targets.at_most("answers that are no 4xx", len(failures), 0)
    targets.check()


def test_a_task_with_a_bad_name_is_not_registered(tokens):
    targets, answers = Targets("09 names of tasks over HTTP"), []
    for name in NAMES:
        answers.append(call(tokens, "POST", "/v1/tasks", json.dumps({"name": name}).encode())[0])
    targets.at_most("answers that are no 4xx", sum(not 400 <= status < 500 for status in answers), 0)
    targets.at_most("pins", len(call(tokens, "GET", "/v1/status")[1]["pins"]), 0)
    targets.check()


def test_a_flow_refuses_bad_names_of_tasks():
    targets, accepted, tried = Targets("09 names of tasks in flows"), [], 0
    for name in NAMES:
        for kind, values in (
            (TokensFlowConfig, {"data": [f"{name}=digits:digit"]}),
            (CascadeFlowConfig, {"tasks": [{"name": name}]}),
            (CascadeFlowConfig, {"levels": [{"name": name}]}),
            (BinsFlowConfig, {"streams": [{"name": name}]}),
        ):
            tried += 1
            with contextlib.suppress(InputError):
                config.read(kind, overrides=values)
                accepted.append((kind.__name__, name))
    say(f"{tried} settings with bad names; {accepted[:5]}")
    targets.at_most("bad names accepted", len(accepted), 0)
    targets.check()


@pytest.mark.parametrize("system", GROUNDS)
def test_openapi_pages_are_valid_and_wrong_methods_are_told_the_right_ones(system, tmp_path):
    targets = Targets(f"09 {system}")
    with served(system, tmp_path) as service:
        prefix = "/v1" if GROUNDS[system].path.startswith("/v1") else ""
        status, _, content = exchange(service.url, "GET", f"{prefix}/openapi.json")
        assert status == 200
        page = json.loads(content)
        wrong = [prefix + path for path in page["paths"] if not described(path, page["paths"][path])]
        unsound = [(path, *answer) for path in page["paths"] for answer in refused(service.url, prefix, page, path)]
    targets.at_least("paths on the OpenAPI page", len(page["paths"]), 3)
    try:
        fault = schemathesis.openapi.from_dict(page).validate() or ""
    except jsonschema_rs.ValidationError as error:
        fault = str(error)[:500]
    targets.at_most(f"faults of the OpenAPI page, by the standard's own schema {fault}", bool(fault), 0)
    targets.at_most("paths whose parameters are not described once each", len(wrong), 0)
    say(f"{wrong[:3]} {unsound[:5]}")
    targets.at_most("wrong methods answered by other than 405 with the right Allow", len(unsound), 0)
    targets.check()


def described(path: str, operations: dict) -> bool:
    """Whether every operation describes each parameter of its path once, and the path itself is as the standard has it."""
    names = re.findall(r"\{(\w+)\}", path)
    if "{" in re.sub(r"\{\w+\}", "", path):
        return False
    return all(
        sorted(item["name"] for item in operation.get("parameters", []) if item["in"] == "path") == sorted(names)
        for operation in operations.values()
    )


def refused(url: str, prefix: str, page: dict, path: str) -> list[tuple[str, int, str]]:
    """Return method, status and Allow of each answer to a wrong method that is no 4xx, or a 405 without a right method.

    Bins take POST /TASK too, so that POST /status has no JSON, or names a task that is not served.
    """
    right = {method.upper() for method in page["paths"][path]}
    answers = []
    for method in METHODS:
        if method not in right:
            status, headers, _ = exchange(url, method, prefix + re.sub(r"\{\w+\}", "x", path))
            allowed = set(re.split(r",\s*", headers.get("allow", ""))) - {"HEAD", "OPTIONS"}
            if not 400 <= status < 500 or (status == 405 and not allowed & right):
                answers.append((method, status, headers.get("allow", "")))
    return answers


def test_retry_after_says_when_the_queue_will_have_moved(tmp_path):
    """The devices are held still, so that the queue fills up; how soon it moves is known by the answers before."""
    targets = Targets("09 Retry-After")
    with served("bins", tmp_path, max_waiting=32, max_texts=32) as service:
        after_few = shed_after(service, 2)
        after_many = shed_after(service, 400)
        limits = [value for value in after_few + after_many if not 1 <= value <= 60]
    say(f"Retry-After after 2 answers: {sorted(set(after_few))}; after 400: {sorted(set(after_many))}")
    targets.at_least("seconds in Retry-After where 2 were answered lately, and 32 wait", max(after_few), 2)
    targets.at_least("fewer seconds where 400 were answered", max(after_few) - min(after_many), 1)
    targets.at_most("Retry-After outside 1 to 60 seconds", len(limits), 0)
    targets.check()


def shed_after(service, count: int) -> list[int]:
    """Return the Retry-After of what is turned away while the devices are held still, after so many answers."""
    for _ in range(count):
        assert exchange(service.url, "POST", BINS.path, BINS.body)[0] == 200
    body = json.dumps({"inputs": [["a dog"]] * 16}).encode()
    stopped = processes(service)
    for device in stopped:
        device.send_signal(signal.SIGSTOP)
    try:
        requests = ConcurrentCalls(lambda _: exchange(service.url, "POST", BINS.path, body), 12)
        wait_for(lambda: 429 in [status for status, _, _ in requests.so_far()])
    finally:
        go_on(stopped)
    return [int(headers["retry-after"]) for status, headers, _ in requests.answers() if status in (429, 503)]


def test_observed_prompts_are_their_owners_alone(tmp_path):
    """Also where files are everybody's otherwise, and after the file was rotated."""
    targets = Targets("09 observed prompts")
    before = os.umask(0)
    try:
        with served("packing", tmp_path, observe=True, observed_bytes=2000) as service:
            for _ in range(12):
                assert call(service, "POST", PACKING.path, PACKING.body)[0] == 200
    finally:
        os.umask(before)
    files = list(observed_path(tmp_path / "home", NAME).parent.glob(f"{NAME}*"))
    readable = [file.name for file in files if file.stat().st_mode & 0o777 != 0o600]
    targets.at_least("files of observed prompts", len(files), 1)
    targets.at_most("of them with another mode than 0600", len(readable), 0)
    targets.check()
