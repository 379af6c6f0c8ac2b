"""Rows that repeat: each group is in one part of a split, counts once where it is held out, and breaks no promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import LevelOutputs
from pliant.cascade.plan import Measured, PlanConfig, make
from pliant.cascade.tabi import TabiConfig
from pliant.errors import InputError
from pliant.training import data, groups
from pliant.training.groups import Repeats, Split, separate
from pliant.training.text_data import assemble, with_rows
from tests.fixtures.cascade.scenarios import outputs, tables

CLASSES = ("a", "b", "c")
WORLDS = 100
QUICK = PlanConfig(further=(), tabi=TabiConfig(slopes=(20.0,)))


def parts(split: Split) -> list[list[int]]:
    return [part.tolist() for part in (split.fit, split.profiling, split.test)]


def promise(seed: int, apart: bool) -> float:
    """Return the accuracy promised for levels that know by heart what they were trained on, and guess all else.

    Labels are drawn at random, once an input, and each row stands in the data 1 to 10 times. `apart`: whether equal rows
    are in one part of the split.
    """
    rng = np.random.default_rng(seed)
    group_R = np.repeat(np.arange(400), rng.integers(1, 11, 400))
    label_R = rng.integers(len(CLASSES), size=400)[group_R]
    whole = data.split(len(group_R), seed, 0.2, 0.25)
    split = separate(whole, group_R, label_R)[0] if apart else whole
    known_R = np.isin(group_R[split.profiling], group_R[split.fit])
    label_R = label_R[split.profiling]
    levels = []
    for _ in range(2):
        answer_R = np.where(known_R, label_R, rng.integers(len(CLASSES), size=len(label_R)))
        logits = 3 * np.eye(len(CLASSES))[answer_R] + rng.normal(0, 0.5, (len(label_R), len(CLASSES)))
        levels.append(LevelOutputs(logits.astype(np.float32), np.full(len(label_R), 20, np.int32)))
    held = outputs(CLASSES, label_R.astype(np.float64), tuple(levels), ())
    return make(held, [Measured(table) for table in tables(2)], QUICK, False, "cpu").candidates[0].promised


def test_random_labels_of_rows_that_repeat_break_at_most_the_declared_share_of_promises():
    assert sum(promise(seed, apart=True) > 1 / len(CLASSES) for seed in range(WORLDS)) <= 0.05 * WORLDS


def test_equal_rows_on_both_sides_of_a_split_break_every_promise():
    assert all(promise(seed, apart=False) > 0.8 for seed in range(3))


@given(
    st.lists(st.integers(0, 30), min_size=12, max_size=120),
    st.integers(0, 9),
    st.sampled_from(["", "test", "profiling"]),
)
def test_no_group_is_in_two_parts_and_a_held_out_one_counts_once(keys, seed, own):
    whole = replace(data.split(len(keys), seed), brought=(own,) if own else ())
    group_R = groups.of_keys(keys)
    try:
        split, repeats = separate(whole, group_R, keys)
    except InputError:
        return
    fit, profiling, test = (group_R[part].tolist() for part in (split.fit, split.profiling, split.test))
    assert len(set(profiling)) + len(set(test)) == len(profiling) + len(test)
    assert not set(fit) & {*profiling, *test}
    assert not set(profiling) & set(test)
    assert {*fit, *profiling, *test} == set(group_R.tolist())
    assert (repeats.rows, repeats.inputs, repeats.contradicting) == (len(keys), len(set(keys)), 0)
    if own:
        kept = getattr(split, own)
        assert {*group_R[kept]} == {*group_R[getattr(whole, own)]}
    else:
        assert repeats.left_out == 0


def test_what_repeats_is_told():
    label_R = np.array([0, 1, 0, 0, 0, 0])
    split = Split(np.arange(2, 6), np.arange(0), np.arange(2), brought=("test",))
    chosen, repeats = separate(split, np.array([0, 0, 1, 2, 3, 0]), label_R)
    assert parts(chosen)[0] == [2, 3, 4]
    assert repeats == Repeats(6, 4, 1, 1)
    for part in ("2 of 6 rows repeat", "1 of the 4 different inputs have several labels", "1 are left out"):
        assert part in str(repeats)


def test_rows_that_are_added_to_train_on_are_none_that_are_held_out():
    texts, label_R = [f"text {number}" for number in range(20)], np.arange(20) % 2
    own = assemble("own", texts, None, label_R, ("a", "b"), data.split(20, 0))
    rows = [(text.upper(), None, float(label)) for text, label in zip(texts, label_R, strict=True)]
    old, brought = own.split, ("test", "profiling")
    joined = with_rows(own, rows, lambda new: replace(old, fit=np.concatenate([old.fit, new]), brought=brought))
    assert parts(joined.split)[1:] == parts(own.split)[1:]
    assert len(joined.split.fit) == 2 * len(own.split.fit)
