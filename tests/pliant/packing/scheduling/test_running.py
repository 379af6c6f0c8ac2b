"""The columns of the running sequences, against a plain table of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import POINTS
from pliant.packing.scheduling.running import COLUMNS, Running

acts = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=120)


def values(id: int, rng) -> tuple[int, ...]:
    return (id, *(int(x) for x in rng.integers(0, 50, len(COLUMNS) - 1)))


@given(acts, st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 5))
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


def test_numbers_that_are_left_out_of_a_row_are_0():
    running = Running()
    running.add(tuple(range(1, len(COLUMNS) - 1)), 0.0, np.zeros(POINTS))
    assert running.remove(1) == dict(zip(COLUMNS, [*range(1, len(COLUMNS) - 1), 0, 0], strict=True))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_by_turn_gives_the_chosen_the_first_admitted_first(turns):
    running = Running()
    for id, turn in enumerate(turns):
        running.add(tuple(turn if name == "turn" else id for name in COLUMNS), 0.0, np.zeros(POINTS))
    chosen = running.by_turn(running.column("id") % 2 == 0)
    assert [int(running.column("id")[at]) for at in chosen] == sorted(range(0, len(turns), 2), key=lambda id: turns[id])


def test_a_column_is_a_view_that_may_be_written_to():
    running = Running()
    running.add(tuple(range(len(COLUMNS))), 0.0, np.zeros(POINTS))
    running.column("cached")[:] += 5
    running.column("common")[:] = 1
    assert running.column("cached").tolist() == [COLUMNS.index("cached") + 5]
    assert running.pages_held(4) == 1 and Running().pages_held(4) == 0
