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
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from pliant.errors import InputError
from pliant.flows import config
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.outcomes.files import observed_path
from qa.grounds import GROUNDS, served
from qa.targets import Targets, exchange, say, under_attack
from tests.fixtures.clients import ask, call, image_body, wait_for
from tests.fixtures.live import ConcurrentCalls, go_on, processes
from tests.fixtures.packing.published import NAME
from tests.fixtures.tokens.published import CLASSES, publish
from tests.fixtures.tokens.samples import tiny_task

TOKENS, BINS, PACKING = GROUNDS["tokens"], GROUNDS["bins"], GROUNDS["packing"]
PIN = b'{"name": "digits", "version": 1}'
KINDS = (
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {},
    {"content-type": "application/json", "host": "rebound.example:3000"},
)
"""Kinds of requests that a page may send without being asked first (CORS), and one by a name that was rebound."""
CHARSETS = (
    *("undefined", "punycode", "idna", "rot13", "base64", "zip", "utf-16", "utf-7", "mbcs", "none", "x" * 900, "\xff"),
)
"""Of which Python knows some as anything but a way to write letters."""
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
NAMES = ("../up", "a/b", "a b", ".hidden", "-front", "", "a\n", "a\0b", "é", "..", "encoder/x", "%2e%2e")
PART = '--b\r\ncontent-disposition: form-data; name="task-\xe9"\r\n'
FORM = (PART + "{}\r\ndigits\r\n--b--\r\n").encode("latin-1")
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


def pin(url: str) -> None:
    for headers in KINDS:
        for path in ("/v1/tasks", "/v1/refresh"):
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", path, PIN, headers)
                status = connection.getresponse().status
                assert status in (415, 421, 503), status
            connection.close()


def test_02_pages_that_pin_an_old_version(tmp_path):
    """What any web page can send to a service on its visitor's machine must not pin a task to an old version."""
    with served("tokens", tmp_path) as service:
        digest = call(service, "GET", "/v1/status")[1]["backbone"]["digest"]
        publish(tmp_path, tiny_task("digits", CLASSES, digest, seed=2))
        assert call(service, "POST", "/v1/refresh", b"{}")[1]["outcome"] == "changed"
        under_attack(service, ("POST", TOKENS.path, image_body()), [pin], "02 pins by web pages")
        assert call(service, "GET", "/v1/status")[1]["pins"] == {}
        assert ask(service)[1]["versions"]["task"] == 2


def strange_forms() -> Iterator[tuple[bytes, str]]:
    """Yield forms with their content types: the charset of the whole, and that of a part."""
    for charset in CHARSETS:
        yield FORM.replace(b"{}", b""), f"multipart/form-data; boundary=b; charset={charset}"
        part = f"content-type: text/plain; charset={charset}\r\n".encode("latin-1")
        yield FORM.replace(b"{}", part), "multipart/form-data; boundary=b"


def send_strange_forms(url: str) -> None:
    for body, kind in strange_forms():
        status = 503
        with suppress(OSError, http.client.HTTPException):
            status, _, content = exchange(url, "POST", TOKENS.path, body, {"content-type": kind})
        assert 400 <= status < 500 or status == 503, f"{status} for {kind[:80]}: {content[:200]!r}"
        time.sleep(0.005)


def use_wrong_methods(url: str) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        status, headers = 503, {}
        with suppress(OSError, http.client.HTTPException):
            status, headers, _ = exchange(url, method, TOKENS.path)
        assert status == 503 or (status == 405 and headers["allow"] == "POST"), f"{status} {headers}"
        time.sleep(0.005)


@pytest.mark.parametrize("attack", [send_strange_forms, use_wrong_methods])
def test_09_strange_requests(tokens, attack):
    under_attack(tokens, ("POST", TOKENS.path, TOKENS.body), [attack], f"09 {attack.__name__.replace('_', ' ')}")


def test_09_strange_charsets_are_errors_of_the_client(tokens):
    targets, failures = Targets("09 charsets of forms"), []
    forms = list(strange_forms())
    for body, kind in forms:
        status, _, content = exchange(tokens.url, "POST", TOKENS.path, body, {"content-type": kind})
        failures += [] if 400 <= status < 500 else [(status, kind[:80], content[:200])]
    say(f"{len(forms)} forms; {failures[:3]}")
    targets.at_most("answers that are no 4xx", len(failures), 0)
    targets.check()


def test_09_a_task_with_a_bad_name_is_not_registered(tokens):
    targets = Targets("09 names of tasks over HTTP")
    answers = [call(tokens, "POST", "/v1/tasks", json.dumps({"name": name}).encode())[0] for name in NAMES]
    targets.at_most("answers that are no 4xx", sum(not 400 <= status < 500 for status in answers), 0)
    targets.at_most("pins", len(call(tokens, "GET", "/v1/status")[1]["pins"]), 0)
    targets.check()


def test_09_a_flow_refuses_bad_names_of_tasks():
    targets, accepted = Targets("09 names of tasks in flows"), []
    for name in NAMES:
        for kind, values in (
            (TokensFlowConfig, {"data": [f"{name}=digits:digit"]}),
            (CascadeFlowConfig, {"tasks": [{"name": name}]}),
            (CascadeFlowConfig, {"levels": [{"name": name}]}),
            (BinsFlowConfig, {"streams": [{"name": name}]}),
        ):
            with suppress(InputError):
                config.read(kind, overrides=values)
                accepted.append((kind.__name__, name))
    say(f"{4 * len(NAMES)} settings with bad names; {accepted[:5]}")
    targets.at_most("bad names accepted", len(accepted), 0)
    targets.check()


@pytest.mark.parametrize("system", GROUNDS)
def test_09_openapi_pages_are_valid_and_wrong_methods_are_told_the_right_ones(system, tmp_path):
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


def test_09_retry_after_says_when_the_queue_will_have_moved(tmp_path):
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


def test_09_observed_prompts_are_their_owners_alone(tmp_path):
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


@pytest.mark.parametrize("system", GROUNDS)
def test_fuzz_no_input_makes_a_service_fail(system, tmp_path):
    ground = GROUNDS[system]
    with served(system, tmp_path) as service, ThreadPoolExecutor(CLIENTS) as pool:
        arguments = (service.url.removeprefix("http://"), ground.path, ground.body, -(-INPUTS // CLIENTS))
        parts = pool.map(lambda number: send_spoilt(*arguments, number), range(CLIENTS))
        answers = [answer for part in parts for answer in part]
        alive = call(service, "POST", ground.path, ground.body)[0]
    statuses = Counter(status for status, _ in answers)
    errors = [said for status, said in answers if status >= 500 and status != DECLARED]
    unanswered = Counter(reason for status, reason in answers if not status)
    say(f"{system}: {dict(sorted(statuses.items()))}; {errors[:5]}; {unanswered}")
    targets = Targets(f"fuzz, {system}")
    targets.at_least("inputs", len(answers), INPUTS)
    targets.at_most("5xx other than declared shedding", len(errors), 0)
    targets.at_most("requests without an answer", statuses[0], 0)
    targets.at_most("status of a good request afterwards", alive, 200)
    targets.check()


def test_fuzz_the_clients_know_a_request_that_is_cut_off():
    """A peer that closes without an answer counts as none."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_spoilt, f"127.0.0.1:{server.getsockname()[1]}", "/", b'{"a": 1}', 1, 0)
        server.accept()[0].close()
        assert [status for status, _ in sending.result()] == [0]
