"""A tenant that asks again when it has its answer, beside one with 30 such clients: it keeps its half of the device."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from itertools import count

import numpy as np
import pytest

from pliant.cascade.knowledge import Knowledge, Model, Path
from pliant.cascade.scheduler import CascadeScheduler
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Arrived, Event, Finished, Launch, Request, Result, Woke

SECONDS, BEGIN, LENGTH = 6.0, 2.0, 16
SIZES = (1, 2, 4, 8, 16, 32)


def rates(fixed: float, each: float, back: float, clients: dict[str, int]) -> dict[str, float]:
    """Return the answers a second. A launch takes `fixed` seconds and `each` a text; clients return after `back`."""
    table = LatencyTable((LENGTH,), SIZES, np.array([[fixed + each * size for size in SIZES]]))
    scheduler = CascadeScheduler(Knowledge((Model(table, (0,)),), {"t": (Path((0,), 0.9),)}))
    chance, ids, order, now = random.Random(0), count(), count(), 0.0
    heap: list[tuple[float, int, str | Event]] = []  # a tenant's name: a request of it comes
    owners, answered = dict[int, str](), dict.fromkeys(clients, 0)
    for name, connections in clients.items():
        for _ in range(connections):
            heappush(heap, (back * chance.random(), next(order), name))
    while now < SECONDS:
        wake = scheduler.wake_at()
        if wake is not None and wake < heap[0][0]:
            now, event = max(now, wake), Woke()
        else:
            now, _, event = heappop(heap)
        if isinstance(event, str):
            owners[id := next(ids)] = event
            event = Arrived(Request(id, now, now + 5.0, "t", length=LENGTH, setting=0, tenant=event))
        for action in scheduler.handle(event, now):
            if isinstance(action, Launch):
                took = table.between(LENGTH, len(action.requests)) * chance.lognormvariate(0, 0.1)
                end = Finished(action.id, took, tuple(map(Result, action.requests)))
                heappush(heap, (now + took, next(order), end))
            else:
                name = owners.pop(action.request)
                answered[name] += isinstance(action, Answer) and now >= BEGIN
                heappush(heap, (now + back * chance.lognormvariate(0, 0.3), next(order), name))
    return {name: number / (SECONDS - BEGIN) for name, number in answered.items()}


@pytest.mark.parametrize("back", [0.5e-3, 2e-3, 6e-3])
@pytest.mark.parametrize(("fixed", "each"), [(2e-3, 2e-3), (4e-3, 5e-4), (1e-3, 5e-3)])
def test_one_connection_keeps_nearly_half_of_its_rate_alone_beside_thirty(fixed, each, back):
    alone = rates(fixed, each, back, {"ann": 1})["ann"]
    many = rates(fixed, each, back, {"many": 30})["many"]
    beside = rates(fixed, each, back, {"ann": 1, "many": 30})
    assert beside["ann"] >= 0.95 * alone / 2
    assert beside["many"] >= 0.8 * many / 2
