"""Tenants of packing take turns by what they received, which is tokens and pages held over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.fairness import Fairness
from pliant.packing.scheduling.forecast import Grid
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.sharing import SHARING, in_turn, predicted, received, service
from pliant.packing.scheduling.waiting_queue import Waiting, WaitingQueue
from tests.fixtures.packing.samples import prompt

MEMORY = Memory(pages=40, page_tokens=4, step_tokens=16)
ROW = Grid(64).row((1.0,) * 8, 8)


def waiting(id: int, tenant: str = "", forecast: float = 4.0, weight: float = 1.0, **rest) -> Waiting:
    request = prompt(id, tenant=tenant, forecast=forecast, weight=weight)
    return Waiting(request, (0, float(id), id), ROW, 12, unread=rest.pop("unread", 4), **rest)


@given(st.integers(1, 30), st.integers(0, 30))
def test_service_is_tokens_and_the_pages_held_in_each_iteration(generated, before):
    """Counted iteration by iteration: the sequence holds one token more after each."""
    held = sum(MEMORY.need(tokens) for tokens in range(before + 1, before + generated + 1))
    expected = (before + generated) / MEMORY.step_tokens + held / MEMORY.pages
    assert service(MEMORY, before + generated, generated, before + generated) == pytest.approx(expected)


def test_a_forecast_that_comes_true_is_what_is_received():
    sequence = waiting(0, forecast=6.0)
    assert predicted(MEMORY, sequence) == received(MEMORY, sequence, {"cached": 10, "generated": 6})


def test_what_was_generated_before_counts_no_second_time():
    again = waiting(0, forecast=6.0, generated=4, cached=8, unread=0)
    assert predicted(MEMORY, again) == service(MEMORY, 2, 2, 10)
    assert predicted(MEMORY, waiting(0, forecast=6.0, generated=9)) > 0  # beyond its forecast: one token at least


tenants = st.lists(st.tuples(st.sampled_from("abcde"), st.floats(1, 30), st.sampled_from([0.5, 1.0, 4.0])), max_size=25)


@given(tenants, st.dictionaries(st.sampled_from("abcde"), st.floats(0, 50)))
def test_next_comes_always_the_first_of_the_tenant_that_would_have_received_least(items, counters):
    class Received:
        def received(self, name: str) -> float:
            return counters.get(name, 0.0)

    queue = WaitingQueue()
    for id, (tenant, forecast, weight) in enumerate(items):
        queue.add(waiting(id, tenant, forecast, weight))
    counter = {tenant: counters.get(tenant, 0.0) for tenant, *_ in items}
    left = list(queue)
    for chosen in in_turn(queue, Received(), MEMORY):
        name = min({item.prompt.tenant for item in left}, key=lambda name: (counter[name], name))
        assert chosen is next(item for item in left if item.prompt.tenant == name)
        counter[name] += predicted(MEMORY, chosen) / chosen.prompt.weight
        left.remove(chosen)
    assert not left


def test_tenants_that_received_nothing_share_by_turns():
    queue = WaitingQueue()
    for id in range(8):
        queue.add(waiting(id, "a" if id < 6 else "b"))
    order = [item.prompt.tenant for item in in_turn(queue, Fairness(SHARING), MEMORY)]
    assert order[:4] == ["a", "b", "a", "b"] and order[4:] == ["a"] * 4
