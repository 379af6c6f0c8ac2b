"""Forms of outputs that take much (20 kinds, 30 at once, new ones again and again): another tenant's outputs meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import pytest

from qa import grounds
from qa.targets import Targets, bearer, exchange, flooding, honest, make_keys, memory, say
from tests.fixtures.packing.hostile_grammars import hostile, schema
from tests.fixtures.packing.published import NAME

AT_ONCE, CALM, SECONDS, AFTER = 30, 10.0, 25.0, 5.0
BODY = {"model": NAME, "prompt": "Tell me of tea", "max_tokens": 24, "temperature": 0}
FORM = schema({"type": "object", "properties": {"name": {"enum": ["tea", "shop"]}}, "required": ["name"]})


def request(**fields: Any) -> tuple[str, str, bytes]:
    return "POST", "/v1/completions", json.dumps({**BODY, **fields}).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grammars")
    keys = make_keys(folder / "keys.json", {"us": "use", "them": "use"})
    with grounds.served("packing", folder, keys_file=folder / "keys.json") as service:
        yield service, {tenant: bearer(key) for tenant, key in keys.items()}


def ready(url: str) -> int:
    with suppress(OSError, HTTPException):
        return exchange(url, "GET", "/readyz")[0]
    return 0


def test_hostile_grammars(served):
    service, headers = served
    targets, stop, most = Targets("17 grammars"), threading.Event(), [0.0]
    states: list[int] = []

    def watch() -> None:
        while not stop.wait(0.2):
            most[0] = max(most[0], memory(service))
            states.append(ready(service.url))

    def asking(form: dict[str, Any]):
        return honest(service, request(**form), headers=headers["us"], clients=2)

    with asking({}) as plain, asking(FORM) as formed:
        time.sleep(CALM)
    before = {"plain": plain, "with a form": formed}
    least = memory(service)
    watching = threading.Thread(target=watch)
    watching.start()
    forms = [request(**form)[2] for number in range(20) for form in hostile(number).values()]  # none twice
    with flooding(service.url, forms, "/v1/completions", headers["them"], SECONDS, AT_ONCE) as attacking:
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
    say(f"answers to the attackers by status: {dict(answers)}; /readyz: {dict(Counter(states))}")
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
