"""Pages on the host come back as they went, and none is lost or used twice."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.engine.swap_space import SwapSpace

PAGES, HOST = 12, 6


def space() -> tuple[list[torch.Tensor], SwapSpace]:
    views = [torch.arange(PAGES * 2.0).reshape(PAGES, 2), torch.arange(PAGES * 3.0).reshape(PAGES, 3)]
    return views, SwapSpace(views, HOST, nullcontext)


@given(st.lists(st.lists(st.integers(0, PAGES - 1), min_size=1, max_size=3, unique=True), max_size=8), st.randoms())
def test_what_was_swapped_out_comes_back_in_order_into_other_pages(sequences, random):
    views, swapped = space()
    kept: dict[int, list[torch.Tensor]] = {}
    for id, pages in enumerate(sequences):
        while sum(len(rows[0]) for rows in kept.values()) + len(pages) > HOST:
            back = random.choice(sorted(kept))
            rows = kept.pop(back)
            to = random.sample(range(PAGES), len(rows[0]))
            swapped.swap_in(back, to)
            assert all(torch.equal(view[to], row) for view, row in zip(views, rows, strict=True))
            assert back not in swapped
        kept[id] = [view[pages].clone() for view in views]
        swapped.swap_out(id, pages)
        for view in views:
            view[pages] = -1.0 - id
        assert id in swapped and swapped.used == sum(len(rows[0]) for rows in kept.values())
        swapped.check()


def test_freeing_gives_the_pages_back_and_what_is_not_there_needs_none():
    _, swapped = space()
    swapped.swap_out(1, [0, 1, 2])
    swapped.free(1)
    swapped.free(1)
    assert swapped.used == 0 and 1 not in swapped
    swapped.check()


@pytest.mark.parametrize("pages", [[0], list(range(HOST))])
def test_a_sequence_is_swapped_out_once_and_only_where_it_fits(pages):
    _, swapped = space()
    swapped.swap_out(1, [3])
    with pytest.raises(AssertionError, match="free on the host"):
        swapped.swap_out(1 if len(pages) == 1 else 2, pages)


@pytest.mark.parametrize("free", [[0], [0, 0, 1, 2, 3, 4, 5]])
def test_a_lost_page_and_one_used_twice_are_noticed(free):
    _, swapped = space()
    swapped._free = free
    with pytest.raises(AssertionError, match="pages on the host"):
        swapped.check()


def test_the_books_begin_empty_and_what_does_not_fit_is_refused_with_both_numbers():
    views, swapped = space()
    assert (swapped.pages, swapped.used) == (HOST, 0) and 1 not in swapped
    swapped.swap_out(1, [0, 1])
    assert swapped.used == 2
    with pytest.raises(AssertionError, match="5 pages, 4 free on the host"):
        swapped.swap_out(2, range(5))
    swapped.swap_out(2, range(4))
    assert swapped.used == HOST and 2 in swapped
    swapped.check()
    empty = SwapSpace(views, 0, nullcontext)
    empty.check()
    assert (empty.pages, empty.used) == (0, 0)


def test_copies_run_on_the_stream_that_computes():
    entered = []

    class Stream:
        def __enter__(self):
            entered.append("in")

        def __exit__(self, *_):
            entered.append("out")

    views = [torch.zeros(4, 2)]
    swapped = SwapSpace(views, 4, Stream)
    swapped.swap_out(1, [2])
    swapped.swap_in(1, [3, 0])  # one page more than was kept, for the tokens to come
    assert entered == ["in", "out", "in", "out"] and swapped.used == 0
    with pytest.raises(KeyError):
        swapped.swap_in(1, [3])
