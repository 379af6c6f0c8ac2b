"""Ten thousand good requests to each service, spoilt. Those that its OpenAPI page allows or forbids are conformance's."""

from __future__ import annotations

import copy
import http.client
import json
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from qa.grounds import GROUNDS, served
from qa.targets import Targets, say
from tests.fixtures.clients import call

INPUTS = int(os.environ.get("PLIANT_FUZZ_INPUTS", "10000"))
SEED = int(os.environ.get("PLIANT_FUZZ_SEED", "0"))
CLIENTS = 8
DECLARED = 503
TIMEOUT = 60.0  # seconds

NUMBERS = (0, -1, 1e308, -1e308, 10**40, float("nan"), float("inf"), 0.1)
TEXTS = ("", "0", "\x00", "a" * 70_000, "\ud800", "😀" * 99, "true", "../../etc/passwd")
NESTED = ([], [[]], {}, {"": None}, [None], ["a"] * 5000, {"a": {"a": {"a": []}}}, [[[[[[[[[]]]]]]]]])
STRANGE: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, *NESTED)
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


class Tally:
    """Counts answers by status; keeps the first few bodies of undeclared server errors."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.errors: list[str] = []
        self.unanswered: Counter[str] = Counter()  # by reason
        self._lock = threading.Lock()

    def add(self, status: int, what: str) -> None:
        with self._lock:
            self.statuses[status] += 1
            if status >= 500 and status != DECLARED:
                self.errors.append(what)
            if not status:
                self.unanswered[what] += 1


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
        places = list(_places(value))
        if not places:
            break
        holder, key = draw.choice(places)
        strange = copy.deepcopy(draw.choice(STRANGE))
        match draw.randrange(4):
            case 0 if isinstance(holder, dict):
                holder[draw.choice(["stop", "n", "stream", "deadline", "utility", "options", "logprobs", "x"])] = (
                    strange
                )
            case 1:
                del holder[key]
            case 2:
                holder[key] = [holder[key]] * draw.randint(0, 40)
            case _:
                holder[key] = strange
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def send_spoilt(address: str, path: str, body: bytes, count: int, number: int, tally: Tally) -> None:
    draw = random.Random(f"{SEED}/{number}")
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    for _ in range(count):
        content = spoilt(body, draw)
        head = draw.choice(HEADS) if draw.random() < 0.3 else {"content-type": "application/json"}
        try:
            connection.request("POST", path, content, head)
            response = connection.getresponse()
            answer = response.read()
            tally.add(response.status, f"{response.status} for {content[:300]!r} with {head}: {answer[:200]!r}")
        except (OSError, http.client.HTTPException) as error:
            tally.add(0, repr(error))
            connection.close()


@pytest.mark.parametrize("system", GROUNDS)
def test_no_input_makes_a_service_fail(system, tmp_path):
    ground, tally = GROUNDS[system], Tally()
    with served(system, tmp_path) as service:
        arguments = (service.url.removeprefix("http://"), ground.path, ground.body, -(-INPUTS // CLIENTS))
        threads = [threading.Thread(target=send_spoilt, args=(*arguments, at, tally)) for at in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alive = call(service, "POST", ground.path, ground.body)[0]
    say(f"{system}: {dict(sorted(tally.statuses.items()))}; {tally.errors[:5]}; {tally.unanswered}")
    targets = Targets(f"fuzz, {system}")
    targets.at_least("inputs", tally.statuses.total(), INPUTS)
    targets.at_most("5xx other than declared shedding", len(tally.errors), 0)
    targets.at_most("requests without an answer", tally.statuses[0], 0)
    targets.at_most("status of a good request afterwards", alive, 200)
    targets.check()


def test_the_clients_know_a_request_that_is_cut_off():
    """A peer that closes without an answer counts as none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        tally = Tally()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=send_spoilt, args=(address, "/", b'{"a": 1}', 1, 0, tally))
        thread.start()
        server.accept()[0].close()
        thread.join()
    assert tally.statuses == {0: 1}
