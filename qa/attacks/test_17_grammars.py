"""Forms of outputs that take much (20 kinds, 30 at once, new ones again and again): another tenant's outputs meanwhile."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import pytest

from qa.targets import Targets, elsewhere, honest, memory, say
from serving.http.access.key_file import update_keys
from tests.fixtures.live import running
from tests.fixtures.packing.hostile_grammars import hostile, schema
from tests.fixtures.packing.published import NAME, MlflowPublisher, publish_tiny, settings_for
from tests.serving.http.access.test_keys import with_new

AT_ONCE, KINDS, CALM, SECONDS, AFTER = 30, 20, 10.0, 25.0, 5.0
BODY = {"model": NAME, "prompt": "Tell me of tea", "max_tokens": 24, "temperature": 0}
FORM = schema({"type": "object", "properties": {"name": {"enum": ["tea", "shop"]}}, "required": ["name"]})


def request(**fields: Any) -> tuple[str, str, bytes]:
    return "POST", "/v1/completions", json.dumps({**BODY, **fields}).encode()


def status_of(url: str, request: tuple[str, str, bytes], headers: dict[str, str]) -> int:
    """Return the status of an answer; 0: none came."""
    method, path, body = request
    kind = {"content-type": "application/json"} if body else {}
    asked = urllib.request.Request(f"{url}{path}", body or None, {**kind, **headers}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grammars")
    publish_tiny(MlflowPublisher(folder))
    keys = {
        tenant: update_keys(folder / "keys.json", partial(with_new, tenant=tenant, roles=("use",)))[0]
        for tenant in ("us", "them")
    }
    with running(settings_for(folder, keys_file=folder / "keys.json"), folder) as service:
        yield service, {tenant: {"authorization": f"Bearer {key}"} for tenant, key in keys.items()}


def attack(url: str, headers: dict[str, str], until: float) -> Counter[int]:
    """Send hostile forms, 30 at once, none twice, until a time; return the answers by status. In a process of its own."""
    elsewhere()
    numbers, kinds = count(), [list(hostile(number).values()) for number in range(20)]

    def ask_on(_: int) -> list[int]:
        statuses = []
        while time.monotonic() < until:
            at = next(numbers)
            statuses.append(status_of(url, request(**kinds[at // KINDS % 20][at % KINDS]), headers))
        return statuses

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Counter(status for statuses in pool.map(ask_on, range(AT_ONCE)) for status in statuses)


def test_hostile_grammars(served):
    service, headers = served
    targets, stop, most = Targets("17 grammars"), threading.Event(), [0.0]
    ready: list[int] = []

    def watch() -> None:
        while not stop.wait(0.2):
            most[0] = max(most[0], memory(service))
            ready.append(status_of(service.url, ("GET", "/readyz", b""), {}))

    def asking(form: dict[str, Any]):
        return honest(service, request(**form), headers=headers["us"], clients=2)

    with asking({}) as plain, asking(FORM) as formed:
        time.sleep(CALM)
    before = {"plain": plain, "with a form": formed}
    least = memory(service)
    watching = threading.Thread(target=watch)
    watching.start()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(attack, service.url, {}, 0.0).result()  # it has imported everything
        attacking = pool.submit(attack, service.url, headers["them"], time.monotonic() + SECONDS)
        with asking({}) as plain, asking(FORM) as formed:
            time.sleep(SECONDS)
        answers = attacking.result()
    stop.set()
    watching.join()
    during = {"plain": plain, "with a form": formed}
    time.sleep(AFTER)
    with asking({}) as plain, asking(FORM) as formed:
        time.sleep(CALM)
    say(f"MB before, most, after: {least:.0f}, {most[0]:.0f}, {memory(service):.0f}")
    say(f"answers to the attackers by status: {dict(answers)}; /readyz: {dict(Counter(ready))}")
    for kind, after in {"plain": plain, "with a form": formed}.items():
        base, met = before[kind], during[kind]
        say(
            f"{kind}: p99 {base.p99:.3f}, {met.p99:.3f}, {after.p99:.3f} s; answers a second "
            f"{len(base.seconds) / CALM:.0f}, {len(met.seconds) / SECONDS:.0f}, {len(after.seconds) / CALM:.0f}; "
            f"failures {met.reasons[:2]}"
        )
        targets.at_least(f"others' success, {kind}", met.success, 0.99)
        targets.at_most(f"others' p99 over without, {kind}", met.p99 / max(base.p99, after.p99), 1.5, "x")
        targets.at_most(f"p99 {AFTER:g} s after the attack over before, {kind}", after.p99 / base.p99, 1.5, "x")
    targets.at_most("memory over before", most[0] - least, 500, " MB")
    targets.at_most("memory after over before", memory(service) - least, 100, " MB")
    targets.check()
