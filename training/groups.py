"""Groups of rows with equal inputs, and splits that keep each group together.

Rows that repeat are no independent evidence: a model that has learnt a text by heart is right on its copies, and a bound
from their count promises more than is known. So equal inputs are in one part of a split only, and a held-out group counts
once, by one of its rows.

Shape suffixes: R rows, N rows of a split, G groups.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError

Index = NDArray[np.int64]
DRAW = 20261128  # seed of the rows that stand for their groups: none that draws splits, so that the two are independent
PARTS = ("test", "profiling", "fit")


@dataclass(frozen=True, slots=True)
class Split:
    """Disjoint row numbers: `fit` is trained on, `profiling` is measured to plan by, `test` is measured to report.

    `brought`: those of PARTS that the data set has itself, which take no rows from elsewhere and give none away.
    """

    fit: Index
    profiling: Index
    test: Index
    brought: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Repeats:
    """How many rows a data set has, of how many different inputs, and how many of these have several labels.

    `left_out`: rows that also stand in a held-out part that the data set has itself.
    """

    rows: int
    inputs: int
    contradicting: int = 0
    left_out: int = 0

    def __str__(self) -> str:
        if self.rows == self.inputs:
            return f"all {self.rows} inputs are different"
        sentence = f"{self.rows - self.inputs} of {self.rows} rows repeat another row's input"
        if self.contradicting:
            sentence += f", and {self.contradicting} of the {self.inputs} different inputs have several labels"
        if self.left_out:
            sentence += f"; {self.left_out} are left out, as they also stand in the data set's own held-out part"
        return f"{sentence}; equal inputs are in one part of the split, and count once where they are held out"


def key(first: str, second: str | None = None) -> tuple[str, ...]:
    """Return what a text, or a pair, is compared by: in Unicode's form NFKC, without case, with single spaces."""
    texts = (first,) if second is None else (first, second)
    return tuple(" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)


def of_keys(keys: Iterable[Hashable]) -> Index:
    """Return [R] the group of every row: equal keys have equal numbers, which ascend from 0 as groups first occur."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in keys], dtype=np.int64)


def of_texts(texts: Iterable[str], seconds: Iterable[str | None] | None = None) -> Index:
    """Return [R] the group of every text, or of every pair with `seconds`."""
    return of_keys(map(key, texts) if seconds is None else map(key, texts, seconds))


def firsts(group_R: Index) -> Index:
    """Return [G] the first row of every group."""
    return np.unique(group_R, return_index=True)[1].astype(np.int64)


def divide(group_R: Index, share: float, seed: int) -> tuple[Index, Index]:
    """Return the rows of a random `share` of the groups, at least one group, and all others; both in random order."""
    count = int(group_R.max(initial=-1)) + 1
    place_R = np.argsort(np.random.default_rng(seed).permutation(count))[group_R]
    order_R = np.argsort(place_R, kind="stable").astype(np.int64)
    held, rest = np.split(order_R, [np.searchsorted(place_R[order_R], max(1, round(share * count)))])
    return held, rest


def separate(whole: Split, group_R: Index, label_R: Sequence[Any] | NDArray[Any]) -> tuple[Split, Repeats]:
    """Return the split with each group in one part, and what repeats in it. Where nothing does, it is the very same split.

    One row of each group is drawn, and the group goes where that row is: every group, whatever its size, is held out with
    the same probability. In a held-out part that row stands alone for its group, so that its correctness is one
    independent draw, 0 or 1, with the group's own mean: Clopper and Pearson's bound is made for just that, and holds for the
    mean over different inputs. All rows of a group are trained on, side by side. Of a part that
    the data set has itself no group goes elsewhere: what repeats in it is left out of the others. Raises `InputError` where
    a part loses all of its rows.
    """
    parts = [getattr(whole, name) for name in PARTS]
    row_N, part_N = np.concatenate(parts), np.repeat(np.arange(len(PARTS)), [len(part) for part in parts])
    _, group_N = np.unique(group_R[row_N], return_inverse=True)
    count = int(group_N.max(initial=-1)) + 1
    if count == len(row_N):
        return whole, Repeats(count, count)
    rank = np.array([PARTS.index(name) if name in whole.brought else len(PARTS) for name in PARTS])
    order_N = np.lexsort((np.random.default_rng(DRAW).random(len(row_N)), rank[part_N]))
    drawn_G = order_N[firsts(group_N[order_N])]  # places in row_N
    drawn_N = drawn_G[group_N]
    fit_N = np.flatnonzero(part_N[drawn_N] == PARTS.index("fit"))
    fit_N = fit_N[np.argsort(drawn_N[fit_N], kind="stable")]
    test, profiling = (row_N[np.sort(drawn_G[part_N[drawn_G] == part])] for part in (0, 1))
    chosen = replace(whole, fit=row_N[fit_N], profiling=profiling, test=test)
    for before, name in zip(parts, PARTS, strict=True):
        if len(before) and not len(getattr(chosen, name)):
            raise InputError("data", f"{len(row_N)} rows of {count} different inputs", f"enough for a {name} split")
    labelled = np.unique(np.stack([group_N, of_keys(np.asarray(label_R)[row_N].tolist())]), axis=1)[0]
    left_out = int(((rank[part_N[drawn_N]] < len(PARTS)) & (part_N != part_N[drawn_N])).sum())
    return chosen, Repeats(len(row_N), count, int((np.bincount(labelled) > 1).sum()), left_out)
