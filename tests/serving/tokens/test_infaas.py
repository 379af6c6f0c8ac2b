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
from tests.fixtures.tokens.samples import tiny_variant

pytestmark = pytest.mark.slow

DEVICE = f"cpu-{platform.machine()}-1t"
TASKS = {"digits": ["zero", "one", "two"]}


def small(seed: int):
    """Publish a variant by whose table the larger one can serve some two requests a second."""
    table = LatencyTable((0,), (1, 2, 4, 8, 16), ((0.1, 0.11, 0.12, 0.14, 0.2),))
    return replace(tiny_variant("small", TASKS, DEVICE, seed), latency=table)


def large():
    """Publish the large variant, which by its table serves 1.8 requests per second."""
    table = LatencyTable((0,), (1, 2, 4, 8, 16), ((0.5, 1.0, 2.0, 4.0, 8.0),))
    return replace(tiny_variant("large", TASKS, DEVICE, 3), latency=table)


def test_the_large_model_is_loaded_where_the_load_allows_it_and_answers_say_which_one_it_was(tmp_path):
    """Both take next to nothing beside their tables, which is learnt: four clients are no load for the large one either.

    That the small one comes back under load is tested in virtual time (tests/pliant/tokens/test_infaas.py).
    """
    publish(tmp_path, small(1), large())
    settings = settings_for(tmp_path, policy="infaas", journal=tmp_path / "journal.jsonl")
    service = launch(settings, tmp_path, free_port(), tmp_path / "log")
    try:
        service.wait_until_ready(PATIENCE)
        first = ask(service)[1]
        assert (first["variant"], first["gamma"], first["versions"]) == ("small", 0, {"variant": 1})
        wait_for(lambda: now_and_then(service)["variant"] == "large")
        with asking(service, ["digits"] * 4) as clients:
            wait_for(lambda: clients.versions("digits"))
            publish(tmp_path, small(2))
            assert call(service, "POST", "/v1/refresh", b"{}")[1]["changed"] == {"pliant-tokens-variant-small": 2}
            before = len(clients.answers)
            wait_for(lambda: len(clients.answers) > before + 4)
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
    assert loads[:1] == [1]
    assert not any(isinstance(action, Drop) for action in actions)
    begin = journal[0].event
    assert isinstance(begin, Changed)
    assert replay(make("infaas", Knowledge.of(begin.facts)), journal) == journal
