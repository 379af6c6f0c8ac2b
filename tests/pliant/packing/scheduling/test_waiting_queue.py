"""The waiting queue against a list that is sorted each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import Grid
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


def test_the_first_tokens_are_those_in_the_cache_after_one_iteration():
    request = prompt(1)
    assert Waiting(request, (0, 0.0, 1), ROW, 12, unread=4).first_tokens == 4
    assert Waiting(request, (0, 0.0, 1), ROW, 12, generated=3, cached=6).first_tokens == 7
    assert Waiting(request, (0, 0.0, 1), ROW, 12, cached=3, unread=1).first_tokens == 4


@given(acts)
def test_some_sequences_in_an_order_of_their_own_begin_with_its_first(steps):
    _, plain = filled(steps)
    order = list(plain.values())
    assert list(InOrder(order)) == order
    assert InOrder(order).first() is (order[0] if order else None)
