"""The bins' promotion gate, on bins without any model, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.bins.artifact import Shape
from pliant.flows.beside import Answers, Beside, slices
from pliant.flows.bins.champions import Score
from pliant.flows.bins.config import GateConfig
from pliant.flows.bins.gate import Candidate, judge
from pliant.profiling.interleaved import Ratio
from pliant.workload import ReferenceConfig
from tests.fixtures.bins.tiny import some_bins

SHORT = ReferenceConfig(quiet=(0.3,), loud=(0.6,), seconds=0.5)
ONCE = GateConfig(seeds=1, workers=2)
POINTS = ((0.01, 0.016), (0.02, 0.032))  # as the profiles have it


def candidate(factor: float = 1.0, score: Score | None = None, **changes) -> Candidate:
    return Candidate(some_bins(factor, **changes), score)


def test_a_champions_shape_that_was_not_measured_again_keeps_its_share_of_the_dynamic_runtimes_seconds():
    """Static runtimes at half of the dynamic one's seconds are better than none, however fast the machine was when."""
    old, new = candidate(0.1), candidate(1.0, shapes=(Shape(64, 4, True),), seconds=())
    verdict = judge(old, new, ONCE, SHORT)
    assert not verdict.passed
    assert verdict.champion.seconds > 0.3 * verdict.challenger.seconds


@pytest.mark.parametrize("engine", ["onnx", "eager"])
@pytest.mark.parametrize(
    ("now", "passes", "words"),
    [
        (
            Beside(Ratio(1.0, 0.93, 1.04), POINTS),
            True,
            "takes 0.93 to 1.04 times the champion's seconds, no difference",
        ),
        (Beside(Ratio(1.2, 1.15, 1.25), POINTS), False, "takes 1.15 to 1.25 times the champion's seconds"),
        (Beside(Ratio(0.8, 0.7, 0.9), POINTS), True, "takes 0.70 to 0.90 times the champion's seconds"),
        (Beside(why="its files are gone"), False, "cannot be run here (its files are gone)"),
    ],
)
def test_an_encoder_profiled_at_a_slower_hour_is_judged_by_what_both_take_now(now, passes, words, engine):
    """The champion was profiled on a machine with nothing else to do, the challenger beside other work."""
    verdict = judge(candidate(1.0), candidate(1.6, encoder="new", engine=engine), ONCE, SHORT, beside=now)
    assert verdict.passed is passes
    assert words in verdict.reason


def test_bins_for_lengths_that_are_asked_no_more_lose_their_place():
    short = np.zeros(65, dtype=np.int64)
    short[6] = 100
    fit = replace(some_bins(edges=(8, 64)), lengths=short)
    verdict = judge(candidate(edges=(64,)), Candidate(fit), ONCE, SHORT)
    assert verdict.passed
    assert verdict.challenger.seconds < verdict.champion.seconds
    assert not judge(Candidate(fit), Candidate(replace(some_bins(edges=(64,)), lengths=short)), ONCE, SHORT).passed


def test_a_less_accurate_encoder_is_refused_where_both_were_tested_on_the_same_texts():
    good, bad = Score(0.8, "d"), Score(0.7, "d")
    verdict = judge(candidate(score=good), candidate(score=bad), ONCE, SHORT)
    assert not verdict.passed
    assert "its encoder's accuracy is 0.7000, worse than the champion's 0.8000" in verdict.reason
    assert judge(candidate(score=bad), candidate(score=good), ONCE, SHORT).passed
    for other in (None, Score(0.7, "other texts")):
        assert judge(candidate(score=good), candidate(score=other), ONCE, SHORT).passed
    assert judge(candidate(score=good), candidate(score=bad), GateConfig(seeds=1, tolerance=0.2), SHORT).passed
    right_R = np.arange(400) < 300
    for worse, passed in ((270, False), (296, True)):
        answers = Answers(right_R, np.arange(400) < worse, slices(np.arange(400) % 2, ("a", "b"), ()))
        verdict = judge(candidate(score=good), candidate(score=bad), ONCE, SHORT, beside=Beside(answers={"d": answers}))
        assert verdict.passed is passed, verdict.reason


def test_a_champion_that_reads_fewer_tokens_is_asked_no_longer_texts_than_it_reads():
    lengths = np.zeros(33, dtype=np.int64)
    lengths[[4, 32]] = 50
    shorter = Candidate(
        replace(
            some_bins(edges=(16,)),
            shapes=(Shape(16, 1), Shape(16, 2), Shape(16, 4), Shape(32, 4, True)),
            lengths=lengths,
        )
    )
    verdict = judge(shorter, candidate(encoder="other"), ONCE, SHORT)
    assert verdict.champion.attainment == pytest.approx(1.0)
