"""Bodies of some megabytes with hundreds of thousands of values: what other clients notice while they are read."""

from __future__ import annotations

import contextlib
import json
import time
from functools import partial
from http.client import HTTPException

import pytest

from qa.targets import exchange, under_attack

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())
BODIES = {
    "numbers": '{"inputs": [' + "1," * 3_000_000 + "1]}",
    "objects": '{"inputs": [' + "{}," * 1_000_000 + "{}]}",
    "blank texts": json.dumps({"inputs": [[" " * 65_000]] * 150}),
    "invisible texts": json.dumps({"inputs": [["\u200b" * 20_000]] * 150}, ensure_ascii=False),
    "long texts": json.dumps({"inputs": [["a dog " * 10_000]] * 150, "truncate": True}),
}


def send(url: str, kind: str) -> None:
    with contextlib.suppress(OSError, HTTPException):
        exchange(url, "POST", "/predict", BODIES[kind].encode(), timeout=30.0)
    time.sleep(0.1)


@pytest.mark.parametrize("kind", BODIES)
def test_large_bodies(service, kind):
    under_attack(service, REQUEST, [partial(send, kind=kind)], f"05 {kind}", rounds=3)
