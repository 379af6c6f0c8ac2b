"""Answers and their labels are kept exactly, and the oldest go first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.outcomes.answer_memory import AnswerMemory
from pliant.outcomes.answered import Answered

CLASSES = Answered("t", 1, "default", "small", "b", 0.8, 0.9, classes=("a", "b"), tenant="acme")
VALUES = Answered("u", "2", "quick", "large", -1.5, 0.25, None, tolerance=0.5)

answers = st.one_of(
    st.builds(
        lambda label, confidence, tenant: replace(CLASSES, label=label, confidence=confidence, tenant=tenant),
        st.sampled_from("ab"),
        st.floats(0, 1),
        st.sampled_from(["", "acme"]),
    ),
    st.builds(lambda value: replace(VALUES, label=value), st.floats(allow_nan=False, allow_infinity=False)),
)


@given(size=st.integers(1, 9), given=st.lists(answers, max_size=40), labelled=st.sets(st.integers(0, 40)))
def test_the_newest_answers_and_their_labels_are_kept_exactly(size, given, labelled):
    memory, expected = AnswerMemory(size), OrderedDict()
    for number, answered in enumerate(given):
        memory.add(f"id {number}", answered, float(number))
        if number in labelled:
            memory.set_label(memory.find(f"id {number}"), answered.label)
        expected[f"id {number}"] = answered, answered.label if number in labelled else None
        while len(expected) > size:
            expected.popitem(last=False)
        memory.check()
    rows = {f"id {number}": memory.find(f"id {number}") for number in range(len(given))}
    kept = {id: (memory.answered(row), memory.label(row)) for id, row in rows.items() if row is not None}
    assert kept == expected
    assert len(memory) == len(expected)
    assert memory.oldest == (len(given) - len(expected) if expected else None)


def test_what_is_dropped_is_not_found_and_leaves_nothing_behind():
    memory = AnswerMemory(100)
    for number in range(100):
        memory.add(str(number), replace(CLASSES, tenant=str(number)), 0.0)
    for number in range(100):
        assert memory.find(str(number)) is not None
        memory.drop_oldest()
        assert memory.find(str(number)) is None
        memory.check()
    assert (len(memory), memory.oldest) == (0, None)


@pytest.mark.parametrize("id", ["", "x" * 10_000, "\ud800", "\0"])
def test_any_text_can_be_looked_up(id):
    memory = AnswerMemory(2)
    assert memory.find(id) is None
    memory.add(id, CLASSES, 0.0)
    assert memory.answered(memory.find(id)) == CLASSES


def lose_a_row(memory: AnswerMemory) -> None:
    memory._heads[memory._bucket(memory._digest_of(1))] = -1


def chain_a_row_twice(memory: AnswerMemory) -> None:
    empty = next(bucket for bucket, row in enumerate(memory._heads) if row == -1)
    memory._heads[empty] = 1


def miscount(memory: AnswerMemory) -> None:
    next(iter(memory._shared.values())).rows += 1


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        (lose_a_row, "a row is lost, or in two chains"),
        (chain_a_row_twice, "a row is lost, or in two chains"),
        (miscount, "what rows share is miscounted"),
    ],
)
def test_the_check_notices_what_is_lost_or_counted_twice(plant, complaint):
    memory = AnswerMemory(64)
    for number in range(3):
        memory.add(str(number), CLASSES, 0.0)
    memory.check()
    plant(memory)
    with pytest.raises(AssertionError, match=complaint):
        memory.check()


def test_an_empty_memory_has_no_answer_to_forget_and_its_rows_no_label():
    memory = AnswerMemory(2)
    with pytest.raises(AssertionError, match="there is no answer to forget"):
        memory.drop_oldest()
    with pytest.raises(AssertionError, match="the row is empty"):
        memory.set_label(0, "a")
