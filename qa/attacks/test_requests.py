"""Requests that a service must refuse: pins by web pages, strange charsets, methods and names, and ten thousand spoilt ones.

Requests that a service's OpenAPI page allows or forbids are conformance's. And what is said beside an answer: OpenAPI pages,
Retry-After, the mode of a file.
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import random
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from pliant.outcomes.files import observed_path
from qa.attacks.attackers import under_attack
from qa.targets import exchange, say
from qa.worlds import WORLDS, served
from tests.fixtures.clients import ask, call, wait_for
from tests.fixtures.live import ConcurrentCalls, go_on, processes
from tests.fixtures.packing.published import NAME
from tests.fixtures.tokens.published import CLASSES, publish
from tests.fixtures.tokens.samples import tiny_task

TOKENS, BINS, PACKING = WORLDS["tokens"], WORLDS["bins"], WORLDS["packing"]
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


def form(part: str = "", whole: str = "") -> tuple[str, str, bytes, dict[str, str]]:
    """Return a request with a multipart form, whose part or whole has a charset."""
    head = f"content-type: text/plain; charset={part}\r\n" if part else ""
    kind = f"multipart/form-data; boundary=b{'; charset=' if whole else ''}{whole}"
    return "POST", TOKENS.path, FORM.replace(b"{}", head.encode("latin-1")), {"content-type": kind}


PINNING = (
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": None},
    {"content-type": "application/json", "host": "rebound.example:3000"},
)
"""Kinds of requests that a page may send without being asked first (CORS), and one by a name that was rebound."""
REQUESTS = {
    "pins by web pages": [
        ("POST", path, b'{"name": "digits", "version": 1}', kind)
        for kind in PINNING
        for path in ("/v1/tasks", "/v1/refresh")
    ],
    "strange forms": [each for charset in CHARSETS for each in (form(whole=charset), form(part=charset))],
    "wrong methods": [(method, TOKENS.path, b"", {}) for method in METHODS if method != "POST"],
    "names of tasks": [("POST", "/v1/tasks", json.dumps({"name": name}).encode(), {}) for name in NAMES],
}
REFUSALS = {"pins by web pages": (415, 421), "strange forms": range(400, 500), "wrong methods": (405,)}
"""Statuses that an attack's requests must be answered with, unless they are shed."""
INPUTS = int(os.environ.get("PLIANT_FUZZ_INPUTS", "10000"))
SEED = int(os.environ.get("PLIANT_FUZZ_SEED", "0"))
CLIENTS = 8
DECLARED = 503
TIMEOUT = 60.0  # seconds
NUMBERS = (0, -1, 1e308, -1e308, 10**40, float("nan"), float("inf"), 0.1)
TEXTS = ("", "0", "\x00", "a" * 70_000, "\ud800", "😀" * 99, "true", "../../etc/passwd")
NESTED = ([], [[]], {}, {"": None}, [None], ["a"] * 5000, {"a": {"a": {"a": []}}}, [[[[[[[[[]]]]]]]]])
STRANGE: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, *NESTED)
FIELDS = ("stop", "n", "stream", "deadline", "utility", "options", "logprobs", "x")
HEADS = (
    {},
    {"content-type": "text/plain"},
    {"content-type": "application/json; charset=utf-16"},
    {"content-type": "multipart/form-data; boundary=b"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-encoding": "gzip"},
    {"accept": "image/png"},
    {"authorization": "Bearer " + "x" * 900},
    {"expect": "100-continue"},
    {"x-forwarded-for": "1, 2, 3", "origin": "null"},
)


def send_all(url: str, attack: str) -> None:
    """Send an attack's requests, each of which must be refused as it should be, or shed."""
    for request in REQUESTS[attack]:
        with suppress(OSError, http.client.HTTPException):
            status, headers, content = exchange(url, *request, timeout=10.0)
            assert status in (*REFUSALS[attack], 503), f"{status} for {request}: {content[:200]!r}"
            assert status != 405 or headers["allow"] == "POST", headers
        time.sleep(0.005)


def test_02_pages_that_pin_an_old_version(tmp_path, targets):
    """What any web page can send to a service on its visitor's machine must not pin a task to an old version."""
    with served("tokens", tmp_path) as service:
        digest = call(service, "GET", "/v1/status")[1]["backbone"]["digest"]
        publish(tmp_path, tiny_task("digits", CLASSES, digest, seed=2))
        assert call(service, "POST", "/v1/refresh", b"{}")[1]["outcome"] == "changed"
        under_attack(targets, service, TOKENS.request, [partial(send_all, attack="pins by web pages")])
        assert call(service, "GET", "/v1/status")[1]["pins"] == {}
        assert ask(service)[1]["versions"]["task"] == 2


@pytest.mark.parametrize("attack", ["strange forms", "wrong methods"])
def test_09_strange_requests(tokens, attack, targets):
    under_attack(targets, tokens, TOKENS.request, [partial(send_all, attack=attack)])


@pytest.mark.parametrize("kind", ["strange forms", "names of tasks"])
def test_09_what_is_wrong_is_an_error_of_the_client_and_changes_nothing(tokens, kind, targets):
    answers = [(exchange(tokens.url, *request), request) for request in REQUESTS[kind]]
    wrong = [(status, content[:200], request) for (status, _, content), request in answers if not 400 <= status < 500]
    say(f"{len(answers)} requests; {wrong[:3]}")
    targets.at_most("answers that are no 4xx", len(wrong), 0)
    targets.at_most("pins", len(call(tokens, "GET", "/v1/status")[1]["pins"]), 0)


@pytest.mark.parametrize("system", WORLDS)
def test_09_openapi_pages_are_valid_and_wrong_methods_are_told_the_right_ones(system, tmp_path, targets):
    with served(system, tmp_path) as service:
        prefix, fault = "/v1" if WORLDS[system].path.startswith("/v1") else "", ""
        page = call(service, "GET", f"{prefix}/openapi.json")[1]
        wrong = [path for path in page["paths"] if not described(path, page["paths"][path])]
        unsound = [(path, *answer) for path in page["paths"] for answer in refused(service.url, prefix, page, path)]
    with suppress(jsonschema_rs.ValidationError):
        fault = schemathesis.openapi.from_dict(page).validate() or "none"
    say(f"{wrong[:3]} {unsound[:5]}")
    targets.at_least("paths on the OpenAPI page", len(page["paths"]), 3)
    targets.at_least("valid by the standard's own schema", fault == "none", 1)
    targets.at_most("paths whose parameters are not described once each", len(wrong), 0)
    targets.at_most("wrong methods answered by other than 405 with the right Allow", len(unsound), 0)


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


def test_09_retry_after_says_when_the_queue_will_have_moved(tmp_path, targets):
    """The devices are held still, so that the queue fills up; how soon it moves is known by the answers before."""
    with served("bins", tmp_path, max_waiting=32, max_texts=32) as service:
        after_few = shed_after(service, 2)
        after_many = shed_after(service, 400)
        limits = [value for value in after_few + after_many if not 1 <= value <= 60]
    say(f"Retry-After after 2 answers: {sorted(set(after_few))}; after 400: {sorted(set(after_many))}")
    targets.at_least("seconds in Retry-After where 2 were answered lately, and 32 wait", max(after_few), 2)
    targets.at_least("fewer seconds where 400 were answered", max(after_few) - min(after_many), 1)
    targets.at_most("Retry-After outside 1 to 60 seconds", len(limits), 0)


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


def test_09_observed_prompts_are_their_owners_alone(tmp_path, targets):
    """Also where files are everybody's otherwise, and after the file was rotated."""
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


def spoilt(body: bytes, draw: random.Random) -> bytes:
    """Return a good JSON body with one to four things changed, or with its bytes damaged."""
    if draw.random() < 0.2:
        damaged = bytearray(body)
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(len(damaged))
            damaged[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        return bytes(damaged)
    value = json.loads(body)
    for _ in range(draw.randint(1, 4)):
        if not (places := list(places_in(value))):
            break
        holder, key = draw.choice(places)
        strange = copy.deepcopy(draw.choice(STRANGE))
        match draw.randrange(4):
            case 0 if isinstance(holder, dict):
                holder[draw.choice(FIELDS)] = strange
            case 1:
                del holder[key]
            case 2:
                holder[key] = [holder[key]] * draw.randint(0, 40)
            case _:
                holder[key] = strange
    return json.dumps(value).encode("utf-8", "surrogatepass")


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places_in(value[key])


def send_spoilt(address: str, path: str, body: bytes, count: int, number: int) -> list[tuple[int, str]]:
    """Return the status of each answer, and what it answers; 0 and the reason where there is none."""
    draw, answers = random.Random(f"{SEED}/{number}"), []
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    for _ in range(count):
        content = spoilt(body, draw)
        head = draw.choice(HEADS) if draw.random() < 0.3 else {"content-type": "application/json"}
        try:
            connection.request("POST", path, content, head)
            response = connection.getresponse()
            said = f"{response.status} for {content[:300]!r} with {head}: {response.read()[:200]!r}"
            answers.append((response.status, said))
        except (OSError, http.client.HTTPException) as error:
            answers.append((0, repr(error)))
            connection.close()
    return answers


@pytest.mark.parametrize("system", WORLDS)
def test_fuzz_no_input_makes_a_service_fail(system, tmp_path, targets):
    ground = WORLDS[system]
    with served(system, tmp_path) as service, ThreadPoolExecutor(CLIENTS) as pool:
        arguments = (service.url.removeprefix("http://"), ground.path, ground.body, -(-INPUTS // CLIENTS))
        parts = pool.map(lambda number: send_spoilt(*arguments, number), range(CLIENTS))
        answers = [answer for part in parts for answer in part]
        alive = call(service, "POST", ground.path, ground.body)[0]
    statuses = Counter(status for status, _ in answers)
    errors = [said for status, said in answers if status >= 500 and status != DECLARED]
    unanswered = Counter(reason for status, reason in answers if not status)
    say(f"{system}: {dict(sorted(statuses.items()))}; {errors[:5]}; {unanswered}")
    targets.at_least("inputs", len(answers), INPUTS)
    targets.at_most("5xx other than declared shedding", len(errors), 0)
    targets.at_most("requests without an answer", statuses[0], 0)
    targets.at_most("status of a good request afterwards", alive, 200)


def test_fuzz_the_clients_know_a_request_that_is_cut_off():
    """A peer that closes without an answer counts as none."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_spoilt, f"127.0.0.1:{server.getsockname()[1]}", "/", b'{"a": 1}', 1, 0)
        server.accept()[0].close()
        assert [status for status, _ in sending.result()] == [0]
