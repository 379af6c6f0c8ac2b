"""Targets of the contest, from divisions that are made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.benchmarks.cascade.contest import (
    BOUGHT,
    FEWER,
    TABI,
    TABI_OURS,
    UNLABELLED,
    Contest,
    Round,
    Showing,
    targets,
)

QUICK = Showing(accuracy=0.9, seconds=0.1, agreement=0.99, labels=50, missed=False)
TABIS = replace(QUICK, seconds=0.4)


def contest(
    majority: float = 0.5,
    pair: bool = False,
    long: bool = False,
    misses: int = 0,
    equal: float = 0.1,
    **shown: Showing,
) -> Contest:
    """Twenty divisions; `equal`: our seconds at the accuracy of both Tabis; `misses`: of each promise."""
    methods = {BOUGHT: QUICK, FEWER: QUICK, UNLABELLED: QUICK, TABI: TABIS, TABI_OURS: TABIS} | shown
    curve = (replace(QUICK, accuracy=0.8, seconds=0.01), replace(QUICK, seconds=equal))
    rounds = [
        Round(0.9, {name: replace(each, missed=number < misses) for name, each in methods.items()}, curve, curve)
        for number in range(20)
    ]
    return Contest(tuple(rounds), majority, pair, long)


def five(**first) -> dict[str, Contest]:
    """Five data sets of which the first is as `first` says."""
    return {"first": contest(**first), **{f"set{number}": contest() for number in range(4)}}


def missed(sets: dict[str, Contest]) -> set[str]:
    return {target.name.rpartition(" of ")[0] or target.name for target in targets(sets) if not target.met}


def test_all_targets_are_met_where_ours_is_quick_everywhere_and_keeps_its_promises():
    assert missed(five()) == set()


@pytest.mark.parametrize(
    ("first", "short"),
    [
        ({BOUGHT: replace(QUICK, seconds=0.6)}, {"seconds over the large model, at most 100 labels, worst"}),
        ({"equal": 0.3}, {"seconds over tabi, equal accuracy, worst"}),
        (
            {"equal": 0.5},
            {
                "seconds over tabi, equal accuracy, worst",
                "seconds over tabi with our levels, equal accuracy, worst",
                "seconds over tabi with our levels and as many labels, equal accuracy, worst",
            },
        ),
    ],
)
def test_a_data_set_that_is_worse_makes_its_own_target_fall_short(first, short):
    assert missed(five(**first)) == short


def test_a_data_set_on_which_the_large_model_learnt_little_does_not_count_but_for_its_promises():
    slow = {BOUGHT: replace(QUICK, seconds=1.0)}
    assert missed(five(majority=0.85, **slow)) == set()
    assert len([t for t in targets(five(majority=0.85, misses=2)) if not t.met]) == 3


@pytest.mark.parametrize(("kind", "what", "most"), [("pair", "pairs", 0.85), ("long", "long texts", 0.6)])
def test_pairs_and_long_texts_have_their_own_limits(kind, what, most):
    met, short = ({kind: True, BOUGHT: replace(QUICK, seconds=most + more)} for more in (-0.01, 0.01))
    assert missed(five(**met)) == set()
    assert missed(five(**short)) == {f"seconds over the large model, {what}, worst"}


def test_without_a_data_set_that_counts_nothing_is_met():
    (worst, *_) = targets({"only": contest(majority=0.85)})
    assert np.isnan(worst.measured) and not worst.met
