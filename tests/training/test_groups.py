"""Rows that repeat: each group is in one part of a split, counts once where it is held out, and breaks no promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import LevelOutputs
from pliant.cascade.plan import PlanConfig, make
from pliant.cascade.tabi import TabiConfig
from pliant.errors import InputError
from tests.fixtures.cascade.scenarios import outputs, tables
from training import data, groups
from training.groups import Repeats, Split, separate
from training.text_data import assemble, with_fit

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
    return make(held, tables(2), [None] * 2, QUICK, False, "cpu").candidates[0].promised
