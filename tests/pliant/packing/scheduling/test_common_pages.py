"""Pages that several sequences use count once, stay while there is room, and hold what their numbers say."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.packing.scheduling.common_pages import CommonPages, beginnings, missing
from pliant.packing.scheduling.request import Memory, Prompt
from tests.fixtures.packing.shared import PAGE, SECRET, World


def test_a_page_counts_once_and_stays_when_its_last_user_has_left() -> None:
    pages = CommonPages()
    assert pages.keep(1, 10) and pages.keep(1, 11) and not pages.keep(2, 10)
    pages.take(2, (10,))
    assert (pages.used, pages.unused, pages.used_without([1]), pages.used_without([1, 2])) == (2, 0, 1, 0)
    pages.leave(1)
    assert (pages.used, pages.unused) == (1, 1)
    assert pages.known((10, 11, 12)) == 2 and pages.known((10, 11), in_use=True) == 1 and pages.known((12, 10)) == 0
    pages.take(3, (10, 11))
    assert (pages.used, pages.unused) == (2, 0)
    pages.check([2, 3])
    with pytest.raises(AssertionError, match="does not run"):
        pages.check([3])


def test_the_page_that_was_used_longest_ago_is_forgotten_first() -> None:
    pages = CommonPages()
    for id in (1, 2, 3):
        pages.keep(id, 10 * id)
        pages.leave(id)
    pages.take(4, (10,))
    pages.leave(4)
    assert pages.forget(3) == ()
    assert pages.forget(1) == (20, 30)
    assert pages.known((10,)) == 1 and pages.known((20,)) == 0
    assert pages.forget(0) == (10,) and pages.unused == 0


def test_a_page_has_a_number_by_all_tokens_up_to_its_end() -> None:
    numbers = beginnings(range(13), PAGE, SECRET)
    assert len(numbers) == 3 and all(0 <= number < 2**63 for number in numbers)
    assert beginnings(range(12), PAGE, SECRET) == numbers[:2], "the last token is read in any case"
    assert beginnings(range(4), PAGE, SECRET) == () == beginnings((), PAGE, SECRET)
    other = beginnings([0, 1, 2, 3, 4, 5, 99, 7, 8, 9, 10, 11, 12], PAGE, SECRET)
    assert other[0] == numbers[0] and not set(other[1:]) & set(numbers)


def test_tenants_and_engines_share_nothing_with_others() -> None:
    mine = beginnings(range(13), PAGE, SECRET, "me")
    assert not set(mine) & set(beginnings(range(13), PAGE, SECRET, "you"))
    assert not set(mine) & set(beginnings(range(13), PAGE, b"t" * 32, "me"))


def test_what_is_missing_begins_with_a_whole_page() -> None:
    prompt = Prompt(1, 0.0, 13, 4, (2.0,) * 8, beginnings=(5, 6, 7))
    assert [missing(prompt, cached, PAGE) for cached in (0, 3, 4, 12)] == [(5, 6, 7), (), (6, 7), ()]


bursts = st.lists(
    st.tuples(
        st.integers(0, 1),  # the text with which its prompts begin
        st.lists(
            st.tuples(st.integers(0, 14), st.integers(1, 9), st.integers(1, 9), st.sampled_from("ab")), max_size=6
        ),
        st.integers(0, 4),  # iterations after it
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("tenants", [False, True])
@pytest.mark.parametrize("host", [0, 6])
@pytest.mark.parametrize("pages", [14, 20])
@settings(max_examples=20, deadline=None)
@given(bursts, st.integers(6, 24), st.integers(2, 8))
def test_the_books_balance_where_prompts_that_begin_alike_are_admitted_together(
    pages, host, tenants, kinds, step_tokens, sequences
) -> None:
    """The pages that they need never exceed the cache, also where one of them is read later than the others."""
    world = World(Memory(pages, PAGE, host, step_tokens, sequences))
    ids = count()
    for family, burst, gap in kinds:
        arrived = []
        for alike, own, output, tenant in burst:
            id = next(ids)
            tokens = tuple(100 * family + at for at in range(alike)) + tuple(
                10_000 + 100 * id + at for at in range(own)
            )
            arrived.append(world.prompt(id, tokens, output, 0.5, tenant if tenants else ""))
        world.step(tuple(arrived))
        for _ in range(gap):
            world.step()
    for _ in range(600):
        if not world.scheduler.waiting and not world.scheduler.running:
            break
        world.step()
    assert not world.scheduler.waiting and not world.scheduler.running and world.cache.used() == 0


def test_prompts_that_are_admitted_together_count_their_beginning_once() -> None:
    world = World(Memory(pages=16, page_tokens=PAGE, step_tokens=64, sequences=16))
    prompts = tuple(world.prompt(id, (*range(40), 100 + id), 2) for id in range(4))
    plan = world.step(prompts)
    assert plan.admitted == (0, 1, 2, 3) and world.scheduler.pages_used == 10 + 4
    assert [(chunk.tokens, len(chunk.taken)) for chunk in plan.prefill_chunks] == [(41, 0)] + [(1, 10)] * 3


def test_a_beginning_that_is_read_over_several_iterations_is_waited_for() -> None:
    """Who cannot be read in this iteration would need pages of its own until the next one."""
    world = World(Memory(pages=60, page_tokens=PAGE, step_tokens=30, sequences=16))
    prompts = tuple(world.prompt(id, (*range(40), 100 + id), 2) for id in range(4))
    assert [world.step(prompts).admitted, world.step().admitted] == [(0,), (1, 2, 3)]
    assert world.scheduler.tokens_taken == 3 * 40
