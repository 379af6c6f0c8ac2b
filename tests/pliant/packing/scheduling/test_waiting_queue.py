"""The waiting queue against a list that is sorted each time, and the running sequences against a table of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import POINTS, Grid
from pliant.packing.scheduling.running import COLUMNS, Running
from pliant.packing.scheduling.waiting_queue import InOrder, Waiting, WaitingQueue
from tests.fixtures.packing.samples import prompt

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
