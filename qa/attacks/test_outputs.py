"""Requests of outputs that take much (grammars, log-probabilities), many at once: another tenant's outputs meanwhile."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import numpy as np

from pliant.serving.packing.bodies import MAX_LOGPROBS
from pliant.serving.packing.endpoint import MAX_PROMPT_LOGPROBS
from qa.clients import again_and_again, asking, flooding
from qa.targets import bearer, exchange, memory, say
from tests.fixtures.packing.hostile_grammars import hostile, schema
from tests.fixtures.packing.published import CONTEXT, NAME

CALM, SECONDS, AFTER = 10.0, 25.0, 5.0
PATH = "/v1/completions"
FORM = schema({"type": "object", "properties": {"name": {"enum": ["tea", "shop"]}}, "required": ["name"]})
PROMPTS = MAX_PROMPT_LOGPROBS // ((MAX_LOGPROBS + 1) * (CONTEXT - 2))
LARGEST = {"prompt": [[5 + at] * (CONTEXT - 2) for at in range(PROMPTS)], "logprobs": MAX_LOGPROBS, "echo": True}


def request(**fields: Any) -> tuple[str, str, bytes]:
    body = {"model": NAME, "prompt": "Tell me of tea", "max_tokens": 24, "temperature": 0, **fields}
    return "POST", PATH, json.dumps(body).encode()


def test_17_hostile_grammars(serve, targets):
    """20 kinds, 30 at once, new ones again and again."""
    service, keys = serve("packing", {"us": "use", "them": "use"})

    def met(seconds: float):
        """Ask plainly and with a form for so long."""
        both = [asking(service.url, request(**form), bearer(keys["us"]), clients=2) for form in ({}, FORM)]
        with both[0] as plain, both[1] as formed:
            time.sleep(seconds)
        return {"plain": plain, "with a form": formed}

    before, least, most, states = met(CALM), memory(service), [0.0], list[int]()

    def watch() -> None:
        most[0] = max(most[0], memory(service))
        with suppress(OSError, HTTPException):
            states.append(exchange(service.url, "GET", "/readyz")[0])

    forms = [request(**form)[2] for number in range(20) for form in hostile(number).values()]  # none twice
    with (
        again_and_again(watch, 0.2),
        flooding(service.url, PATH, forms, bearer(keys["them"]), SECONDS, 30) as attacking,
    ):
        during = met(SECONDS)
        answers = attacking.result()
    time.sleep(AFTER)
    afterwards = met(CALM)
    say(f"MB before, most, after: {least:.0f}, {most[0]:.0f}, {memory(service):.0f}")
    say(f"answers to the attackers by status: {dict(answers)}; /readyz: {dict(Counter(states))}")
    for kind, after in afterwards.items():
        base, beside = before[kind], during[kind]
        rates = [len(base.seconds) / CALM, len(beside.seconds) / SECONDS, len(after.seconds) / CALM]
        say(f"{kind}: p99 {base.p99:.3f}, {beside.p99:.3f}, {after.p99:.3f} s; answers a second {np.round(rates)}")
        say(f"failures {beside.reasons[:2]}")
        targets.at_least(f"others' success, {kind}", beside.success, 0.99)
        targets.at_most(f"others' p99 over without, {kind}", beside.p99 / max(base.p99, after.p99), 1.5, "x")
        targets.at_most(f"p99 {AFTER:g} s after the attack over before, {kind}", after.p99 / base.p99, 1.5, "x")
    targets.at_most("memory over before", most[0] - least, 500, " MB")
    targets.at_most("memory after over before", memory(service) - least, 100, " MB")


def test_18_the_largest_answers(serve, targets):
    """The most log-probabilities that a request can ask for, 20 requests at once: `/livez` and others' outputs."""
    (service, _), alive = serve("packing"), ("GET", "/livez", b"")

    def met(seconds: float):
        with asking(service.url, alive, clients=1) as livez, asking(service.url, request(), clients=2) as others:
            time.sleep(seconds)
        return livez, others

    calm, plain = met(CALM)
    least = memory(service)
    with flooding(service.url, PATH, [request(**LARGEST, max_tokens=1)[2]], {}, SECONDS, 20) as attacking:
        livez, others = met(SECONDS)
        answers = attacking.result()
    say(f"answers to the attackers by status: {dict(answers)}; MB before and after: {least:.0f}, {memory(service):.0f}")
    for when, each in (("alone", calm), ("during the attack", livez)):
        worst = max(one or 30.0 for one in each.seconds)
        say(f"/livez {when}: p99 {1000 * each.p99:.1f} ms, worst {1000 * worst:.1f} ms of {len(each.seconds)}")
    say(f"others: p99 {plain.p99:.3f} s alone, {others.p99:.3f} s during the attack; {others.reasons[:2]}")
    targets.at_most("/livez, p99", 1000 * livez.p99, 50, " ms")
    targets.at_least("others' success", others.success, 0.99)
