"""A real service under the policy infaas: the model is switched by load, and a new version of a variant is served."""

from __future__ import annotations

import platform
import time
from dataclasses import replace

import pytest

from pliant.latency import LatencyTable
from pliant.protocol import Changed, Drop, Launch, replay
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from serving.journal import read
from serving.launch import launch
from tests.fixtures.clients import PATIENCE, ask, asking, call, free_port, wait_for
from tests.fixtures.tokens.published import publish, settings_for
from tests.fixtures.tokens.samples import tiny_backbone, tiny_variant

pytestmark = pytest.mark.slow

DEVICE = f"cpu-{platform.machine()}-1t"
TASKS = {"digits": ["zero", "one", "two"]}
BATCHES = (1, 2, 4, 8, 16)


def small(seed: int):
    table = LatencyTable((0,), BATCHES, ((0.002, 0.003, 0.005, 0.009, 0.017),))
    return replace(tiny_variant("small", TASKS, DEVICE, seed), latency=table)


def large():
    """A variant of many layers, which really takes a multiple of what the small one does.

    By its table it serves ten requests a second, and by what the service learns of the machine some tens.
    """
    table = LatencyTable((0,), BATCHES, ((0.1, 0.2, 0.4, 0.8, 1.6),))
    deep = replace(tiny_variant("large", TASKS, DEVICE, 3), latency=table)
    return replace(deep, backbone=tiny_backbone(3, depth=100))


def test_the_model_is_switched_by_load_and_answers_say_which_one_it_was(tmp_path):
    publish(tmp_path, small(1), large())
    settings = settings_for(tmp_path, policy="infaas", journal=tmp_path / "journal.jsonl")
    service = launch(settings, tmp_path, free_port(), tmp_path / "log")
    try:
        service.wait_until_ready(PATIENCE)
        first = ask(service)[1]
        assert (first["variant"], first["gamma"], first["versions"]) == ("small", 0, {"variant": 1})
        wait_for(lambda: now_and_then(service)["variant"] == "large")
        with asking(service, ["digits"] * 8) as clients:
            wait_for(lambda: clients.answers and clients.answers[-1][1]["variant"] == "small")
            publish(tmp_path, small(2))
            assert call(service, "POST", "/v1/refresh", b"{}")[1]["changed"] == {"pliant-tokens-variant-small": 2}
            wait_for(lambda: clients.answers[-1][1]["versions"] == {"variant": 2})
        assert [one["version"] for one in call(service, "GET", "/v1/status")[1]["variants"]] == [2, 1]
        refused, told = call(service, "POST", "/v1/tasks", b'{"name": "digits"}')
        assert (refused, told["error"]["code"]) == (409, "variants")
    finally:
        assert service.stop(PATIENCE) == 0
    assert all(status == 200 for status, *_ in clients.answers)
    check_journal(tmp_path)


def now_and_then(service) -> dict:
    """Return an answer at a rate that the large model can serve: rates are counted over the last second."""
    time.sleep(1.1)
    return ask(service)[1]


def check_journal(folder) -> None:
    journal = read(folder / "journal.jsonl")
    actions = [action for entry in journal for action in entry.actions]
    loads = [action.setting for action in actions if isinstance(action, Launch) and action.kind == "load"]
    assert loads[:2] == [1, 0]
    assert not any(isinstance(action, Drop) for action in actions)
    begin = journal[0].event
    assert isinstance(begin, Changed)
    assert replay(make("infaas", Knowledge.of(begin.facts)), journal) == journal
