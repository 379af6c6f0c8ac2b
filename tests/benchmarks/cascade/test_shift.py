"""What changes a text is drawn by a seed, and the streams' bets are those of the service."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pliant.benchmarks.cascade.shift import AFTER, BEFORE, alarms, audited, content_words, new_words, typos
from pliant.cascade.evaluate import EvaluationData
from pliant.cascade.plan import Measured, PlanConfig, make
from pliant.outcomes.record import initial_wealth
from pliant.serving.cascade.audit import _Test
from tests.fixtures.cascade.scenarios import classification, tables

TEXT = "Please wake me at nine tomorrow, and remind Margaret of the concert; play quiet music there. " * 30
WORDS = ("zeppelin", "quartz")


def mutations(text, seed=0):
    """The text with typos, and with new words."""
    return typos(text, np.random.default_rng(seed)), new_words(text, WORDS, np.random.default_rng(seed))


def test_the_same_seed_changes_a_text_alike_and_another_one_otherwise():
    assert mutations(TEXT) == mutations(TEXT)
    assert all(first != second for first, second in zip(mutations(TEXT), mutations(TEXT, 1), strict=True))


def test_a_third_of_the_words_change_by_a_letter_and_short_ones_never():
    before, after = (re.findall(r"\w+", text) for text in (TEXT, mutations(TEXT)[0]))
    pairs = list(zip(before, after, strict=True))
    assert all(first == second for first, second in pairs if len(first) < 4)
    assert all(abs(len(first) - len(second)) <= 1 for first, second in pairs)
    long = [first != second for first, second in pairs if len(first) >= 4]
    assert np.mean(long) == pytest.approx(1 / 3, abs=0.06)


def test_new_words_stand_for_content_words_alone():
    before, after = (re.findall(r"\w+", text) for text in (TEXT, mutations(TEXT)[1]))
    replaced = [first.lower() for first, second in zip(before, after, strict=True) if first != second]
    assert set(replaced) <= content_words([TEXT]) and "there" not in replaced
    assert set(after) - set(before) == set(WORDS)


def test_a_streams_bet_breaks_where_the_services_own_does():
    alarm_S = alarms([(500, 0.02), (AFTER, 0.06)], 0.974, streams=3)
    rng, tests, breaks = np.random.default_rng(0), [_Test(1, initial_wealth(), 0.974) for _ in range(3)], [np.inf] * 3
    for number in range(int(alarm_S.max())):
        for stream, differs in enumerate(rng.random(3) < (0.02 if number < 500 else 0.06)):
            tests[stream].add(not differs)
            breaks[stream] = min(breaks[stream], number + 1 if tests[stream].broken else np.inf)
    assert np.isfinite(alarm_S).all() and breaks == alarm_S.tolist()


def test_what_was_proven_is_not_noticed_nor_what_was_not_promised():
    assert np.isinf(alarms([(BEFORE, 0.01)], 0.974)).all()
    assert np.isinf(alarms([(BEFORE, 1.0)], 0.0)).all()


def test_where_the_default_is_left_a_safer_candidate_is_served():
    outputs = classification(1, texts=3000, skills=(4.5, 5.0))
    cascade = make(outputs, list(map(Measured, tables(2))), PlanConfig(), False, "cpu")
    ours, others = EvaluationData(outputs, cascade.levels), classification(2, texts=1000, skills=(2.0, 5.0))
    same, changed = (audited(cascade, ours, each) for each in (ours, EvaluationData(others, cascade.levels)))
    assert (same["then served"], same["false alarms"]) == ("default", 0)
    assert changed["then served"] != "default" and changed["audited until noticed"] < 1000
    assert changed["differ then"] < changed["differ without"]
