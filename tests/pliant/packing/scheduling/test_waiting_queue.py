"""The waiting queue against a sorted list, running sequences against rows, and the turns that tenants take."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import POINTS, Grid
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.running import COLUMNS, Running
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.waiting_queue import (
    SHARING,
    InOrder,
    Waiting,
    WaitingQueue,
    in_turn,
    predicted,
    received,
    service,
    with_places,
)
from tests.fixtures.packing.samples import SECONDS, Scene, play, prompt, scene, seeds

ROW = Grid(64).row((1.0,) * 8, 8)
keys = st.integers(-2, 2).map(float)  # many alike
acts = st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 1), keys), max_size=60)


def waiting(id: int, group: int, key: float) -> Waiting:
    request = prompt(id)
    return Waiting(request, (group, key, id), ROW, 12, unread=4)


def filled(steps) -> tuple[WaitingQueue, dict[int, Waiting]]:
    line, plain = WaitingQueue(), {}
    for comes, id, group, key in steps:
        if comes and id not in plain:
            plain[id] = waiting(id, group, key)
            line.add(plain[id])
        elif not comes and id in plain:
            assert line.remove(id) is plain.pop(id)
    return line, plain


@given(acts)
def test_a_line_is_always_in_order(steps):
    line, plain = filled(steps)
    order = sorted(plain.values(), key=lambda item: item.priority)
    assert list(line) == order and len(line) == len(order)
    assert line.first() is (order[0] if order else None) and line.last() is (order[-1] if order else None)
    assert all((id in line) == (id in plain) for id in range(13))
    assert all(line[id] is item for id, item in plain.items())


@given(acts, st.integers(0, 1), st.floats(-3, 3), st.integers(-1, 12))
def test_the_next_after_a_place_is_found_whether_anybody_has_that_place_or_not(steps, group, key, id):
    line, plain = filled(steps)
    later = [
        item for item in sorted(plain.values(), key=lambda item: item.priority) if item.priority > (group, key, id)
    ]
    assert line.after((group, key, id)) is (later[0] if later else None)


@given(acts)
def test_some_sequences_in_an_order_of_their_own_begin_with_its_first(steps):
    _, plain = filled(steps)
    order = list(plain.values())
    assert list(InOrder(order)) == order
    assert InOrder(order).first() is (order[0] if order else None)


moves = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=120)


def values(id: int, rng) -> tuple[int, ...]:
    return (id, *(int(x) for x in rng.integers(0, 50, len(COLUMNS) - 1)))


@given(moves, st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 5))
def test_columns_hold_what_rows_would(steps, seed, page, more):
    rng, running, plain = np.random.default_rng(seed), Running(), {}
    for comes, id in steps:
        if comes and id not in plain:
            plain[id] = (values(id, rng), float(rng.random()), rng.random(POINTS))
            running.add(*plain[id])
        elif not comes and id in plain:
            assert running.remove(id) == dict(zip(COLUMNS, plain.pop(id)[0], strict=True))
    assert running.count == len(plain) and set(running.ids()) == set(plain)
    for id, (row, key, forecast) in plain.items():
        at = running.at(id)
        assert tuple(int(running.column(name)[at]) for name in COLUMNS) == row and id in running
        assert running.key[at] == key and (running.rows[at] == forecast).all()
        cells = dict(zip(COLUMNS, row, strict=True))
        tokens = cells["cached"] + (cells["unread"] or more)
        assert running.needed(more, page)[at] == -(-tokens // page) - cells["common"]
    rows = [dict(zip(COLUMNS, row, strict=True)) for row, *_ in plain.values()]
    assert running.pages_held(page) == sum(-(-cells["cached"] // page) - cells["common"] for cells in rows)


MEMORY = Memory(pages=40, page_tokens=4, step_tokens=16)
SERVICE = partial(predicted, MEMORY)
PLACES = Memory(60, 4, 0, 64, 4)


def of_tenant(id: int, tenant: str = "", forecast: float = 4.0, weight: float = 1.0, **rest) -> Waiting:
    request = prompt(id, tenant=tenant, forecast=forecast, weight=weight)
    return Waiting(request, (0, float(id), id), ROW, 12, unread=rest.pop("unread", 4), **rest)


@given(st.integers(1, 30), st.integers(0, 30))
def test_service_is_tokens_and_the_pages_held_in_each_iteration(generated, before):
    """Counted iteration by iteration: the sequence holds one token more after each."""
    held = sum(MEMORY.need(tokens) for tokens in range(before + 1, before + generated + 1))
    expected = (before + generated) / MEMORY.step_tokens + held / MEMORY.pages
    assert service(MEMORY, before + generated, generated, before + generated) == pytest.approx(expected)


tenants = st.lists(st.tuples(st.sampled_from("abcde"), st.floats(1, 30), st.sampled_from([0.5, 1.0, 4.0])), max_size=25)


@given(tenants, st.dictionaries(st.sampled_from("abcde"), st.floats(0, 50)))
def test_next_comes_always_the_first_of_the_tenant_that_would_have_received_least(items, counters):
    class Received:
        def received(self, name: str) -> float:
            return counters.get(name, 0.0)

    queue = WaitingQueue()
    for id, (tenant, forecast, weight) in enumerate(items):
        queue.add(of_tenant(id, tenant, forecast, weight))
    counter = {tenant: counters.get(tenant, 0.0) for tenant, *_ in items}
    left = list(queue)
    for chosen in in_turn(queue, Received(), SERVICE):
        name = min({item.prompt.tenant for item in left}, key=lambda name: (counter[name], name))
        assert chosen is next(item for item in left if item.prompt.tenant == name)
        counter[name] += predicted(MEMORY, chosen) / chosen.prompt.weight
        left.remove(chosen)
    assert not left


def flooded(names: tuple[str, str] = ("flood", "ann")) -> Scene:
    """Sixty texts of the first tenant at once, and one of the second every 20 iterations."""
    many = [prompt(i, tokens=8, limit=20, forecast=16.0, tenant=names[0]) for i in range(60)]
    few = [prompt(100 + i, arrival=5.0 * i + 1, limit=8, forecast=4.0, tenant=names[1]) for i in range(10)]
    return Scene(64, PLACES, (*many, *few), {p.id: 14 + p.id % 5 if p.id < 100 else 4 for p in (*many, *few)})


def fresh(load: Scene) -> PackingScheduler:
    return PackingScheduler(load.rules("default"), load.memory)


def waits(load: Scene, journal) -> dict[int, float]:
    """Return the seconds from each text's arrival to its admission."""
    admitted = {id: now for now, _, plan in reversed(journal) for id in plan.admitted}
    return {p.id: admitted[p.id] - p.arrival for p in load.prompts}


def test_a_text_takes_the_place_of_one_of_a_tenant_far_ahead():
    load = flooded()
    device, journal = play(load, fresh(load))
    assert device.made == load.lengths, "who paused went on to the end"
    stalled = {id for _, _, plan in journal for id in plan.stalled}
    assert stalled and max(stalled) < 60, "of the flood alone"
    seconds = waits(load, journal)
    assert max(seconds[id] for id in range(103, 110)) <= SECONDS, "as soon as the flood is far ahead"
    assert all(not (plan.offloaded or plan.discarded) for _, _, plan in journal), "nothing is read again"
    full = [plan for _, _, plan in journal if plan.stalled]
    assert all(len(plan.stalled) == 1 for plan in full), "no more than the places that are taken"


def test_it_is_the_last_one_that_pauses_and_it_goes_on_first():
    load = flooded()
    _, journal = play(load, fresh(load))
    order = [id for _, _, plan in journal for id in plan.admitted if id < 60]
    place = {id: number for number, id in enumerate(order)}
    running: set[int] = set()
    for _, step_input, plan in journal:
        running = (running - set(step_input.finished)) | set(plan.admitted)
        if plan.stalled:
            assert set(plan.stalled) == {max((id for id in running if id < 60), key=place.__getitem__)}


@settings(max_examples=40)
@given(seeds)
def test_whatever_tenants_ask_all_texts_end_and_pages_are_conserved(seed):
    load = scene(seed, most=40)
    names = ("flood", "flood", "flood", "ann")
    load = replace(
        load,
        memory=replace(load.memory, sequences=2),
        prompts=tuple(replace(p, tenant=names[i % 4]) for i, p in enumerate(load.prompts)),
    )
    device, _ = play(load, fresh(load))
    assert device.ended.keys() == load.lengths.keys()


class Counters:
    """What tenants have received."""

    def __init__(self, **received: float) -> None:
        self._received = received

    def received(self, name: str) -> float:
        return self._received[name]


@pytest.mark.parametrize(
    ("flood", "running", "places", "taken"),
    [
        (0.0, {"flood": 2}, 4, [0, 1]),  # two places are free
        (0.0, {"flood": 2}, 5, [0, 1, 2]),
        (0.0, {"flood": 4}, 4, []),
        (8.0, {"flood": 4}, 4, []),  # eight iterations of the device ahead are not too many
        (8.1, {"flood": 4}, 4, [0, 1, 2]),  # more are: its sequences pause
        (8.1, {"flood": 2, "ann": 2}, 4, [0, 1]),  # as many as it has
        (8.1, {"flood": 2, "ann": 2}, 3, [0]),  # fewer if some pause already
        (8.1, {"ann": 4}, 4, []),
    ],
)
def test_who_waits_gets_the_free_places_and_those_of_tenants_that_are_eight_iterations_ahead(
    flood, running, places, taken
):
    queue = WaitingQueue()
    for id in range(3):
        queue.add(of_tenant(id, "ann"))
    chosen = with_places(queue, Counters(ann=0.0, flood=flood), MEMORY, Counter(running), places)
    assert [item.prompt.id for item in chosen] == taken


def test_service_is_that_of_paper_and_pencil():
    """An iteration reads 16 tokens and holds 40 pages of 4 tokens."""
    assert service(MEMORY, 8, 8, 8) == 8 / 16 + (4 * 1 + 4 * 2) / 40
    assert service(MEMORY, 8, 0, 8) == 8 / 16
    assert service(MEMORY, 3, 3, 9) == 3 / 16 + (2 + 2 + 3) / 40
    assert service(MEMORY, 6, 4, 3) == 6 / 16 + 3 / 40, "what it held before cannot be less than nothing"
    again = of_tenant(0, forecast=2.6, generated=3, cached=4, unread=2)
    assert predicted(MEMORY, again) == service(MEMORY, 3, 1, 7)
    assert received(MEMORY, again, {"cached": 9, "generated": 7, "taken": 0}) == service(MEMORY, 5, 4, 9)
    assert (SHARING.burst, SHARING.slack) == (16.0, 0.0)
