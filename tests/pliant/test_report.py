"""The report's figures, computed by hand on a small journal, and each type of outcome."""

from __future__ import annotations

import pytest

from pliant.protocol import Answer, Arrived, Cancelled, Drop, Failed, Finished, JournalEntry, Launch, Request, Result
from pliant.report import Observation, batch_accuracies, observations, report, summarise


def ask(id: int, at: float, deadline: float, utility: float = 1.0) -> Request:
    return Request(id, at, deadline, "a", utility)


ASKED = [ask(0, 0.0, 2.0, 0.5), ask(1, 0.0, 2.0, 0.25), ask(2, 1.0, 1.5, 4.0), ask(3, 1.0, 9.0), ask(4, 2.0, 9.0)]

JOURNAL = [
    JournalEntry(0.0, Arrived(ASKED[0]), ()),
    JournalEntry(0.0, Arrived(ASKED[1]), (Launch(0, 0, (0, 1), 4),)),
    JournalEntry(1.0, Arrived(ASKED[2]), ()),
    JournalEntry(1.0, Arrived(ASKED[3]), ()),
    JournalEntry(2.0, Finished(0, 2.0, (Result(0, True), Result(1, False))), (Answer(0, 0), Answer(1, 0))),
    JournalEntry(2.0, Arrived(ASKED[4]), (Launch(1, 0, (2,), -5), Drop(3, "full"))),
    JournalEntry(4.0, Finished(1, 2.0, (Result(2, True),)), (Answer(2, 1),)),
]


def test_the_figures_are_those_computed_by_hand():
    figures = report(JOURNAL)
    assert (figures.requests, figures.offered, figures.utility) == (5, 6.75, 0.5)
    assert figures.outcomes == {"accurate": 1, "evicted": 1, "late": 1, "waiting": 1, "wrong": 1}
    assert figures.drops == {"full": 1}
    assert figures.attainment == pytest.approx(2 / 5)
    assert figures.accuracy == pytest.approx(2 / 3)  # the late one was right
    assert figures.goodput == pytest.approx(1 / 4)  # from 0 s to 4 s
    assert figures.p50 == 2.0  # of 2, 2 and 3 seconds
    assert figures.p99 == pytest.approx(2 + 0.98)
    assert figures.settings == {-5: 1, 4: 2}
    assert figures.batch == pytest.approx(5 / 3)


def test_an_answer_counts_for_the_launch_that_gave_it_not_for_one_that_failed():
    journal = [
        JournalEntry(0.0, Arrived(ASKED[0]), (Launch(0, 0, (0,), 4),)),
        JournalEntry(0.5, Failed(0, "crash"), (Launch(1, 0, kind="restart"),)),
        JournalEntry(0.6, Finished(1, 0.1), (Launch(2, 0, (0,), -5),)),
        JournalEntry(0.9, Finished(2, 0.3, (Result(0, True),)), (Answer(0, 2),)),
    ]
    (seen,) = observations(journal)
    assert (seen.setting, seen.answered, seen.outcome) == (-5, 0.9, "accurate")


def test_an_answer_at_time_zero_ends_the_span():
    """Zero once counted as no answer: a load whose clock starts below zero reported a hundred times its goodput."""
    figures = summarise([Observation(ask(0, -2.0, 1.0), answered=0.0, correct=True)])
    assert figures.goodput == pytest.approx(0.5)


def test_an_answer_of_an_earlier_launch_is_as_correct_as_that_one_was():
    """Once an answer of a cascade that was cut short had no result of its own, and so earned nothing."""
    request = ask(0, 0.0, 9.0)
    journal = [
        JournalEntry(0.0, Arrived(request), (Launch(0, 0, (0,), 0),)),
        JournalEntry(1.0, Finished(0, 1.0, (Result(0, True, gain=0.5, length=8),)), (Launch(1, 0, (0,), 1),)),
        JournalEntry(2.0, Failed(1, "gone"), (Answer(0, 0, "failed"),)),
    ]
    assert [(o.outcome, o.setting) for o in observations(journal)] == [("accurate", 0)]


def test_a_launchs_share_of_correct_answers_counts_known_labels_alone():
    unknown = JournalEntry(5.0, Finished(2, 1.0, (Result(3, None), Result(4, True))), ())
    empty = JournalEntry(6.0, Finished(3, 1.0, (Result(3, None),)), ())
    assert batch_accuracies([*JOURNAL, unknown, empty]) == [0.5, 1.0, 1.0]


def test_all_figures_of_a_load_whose_requests_fared_in_every_way():
    requests = [ask(i, float(i), i + 2.0, utility=2.0**i) for i in range(7)]
    observed = [
        Observation(requests[0], answered=1.0, correct=True, setting=3, batch=2),
        Observation(requests[1], answered=2.5, correct=False, setting=3, batch=2),
        Observation(requests[2], answered=5.0, correct=True, setting=0, batch=1),
        Observation(requests[3], dropped="late"),
        Observation(requests[4], cancelled=True, dropped="full"),
        Observation(requests[5], answered=5.5, setting=0),
        Observation(requests[6]),
    ]
    figures = summarise(iter(observed))
    outcomes = ["accurate", "wrong", "late", "evicted", "cancelled", "unlabelled", "waiting"]
    assert [each.outcome for each in observed] == outcomes
    assert (figures.requests, figures.offered, figures.utility) == (7, 127.0, 1.0)
    assert (figures.outcomes, figures.drops) == (dict.fromkeys(outcomes, 1), {"full": 1, "late": 1})
    assert list(figures.outcomes) == sorted(outcomes)
    assert figures.attainment == 3 / 6
    assert figures.accuracy == pytest.approx(2 / 3)
    assert figures.goodput == pytest.approx(1 / 6), "the last one came at 6 s"
    assert (figures.p50, figures.p98) == pytest.approx((1.25, 1.5 + 0.94 * 1.5))
    assert (figures.settings, list(figures.settings)) == ({0: 2, 3: 2}, [0, 3])
    assert figures.batch == pytest.approx(5 / 3)


def test_a_client_that_left_is_observed_as_gone():
    journal = [
        JournalEntry(0.0, Arrived(ASKED[0]), (Launch(0, 0, (0,), 4),)),
        JournalEntry(0.5, Arrived(ASKED[1]), (Launch(1, 1, (1,), 4),)),
        JournalEntry(1.0, Cancelled(0), ()),
        JournalEntry(2.0, Finished(1, 1.0, (Result(1),)), (Answer(1, 1),)),
    ]
    gone, stays = observations(iter(journal))
    assert gone == Observation(ASKED[0], cancelled=True)
    assert stays == Observation(ASKED[1], 2.0, None, 4, 1)
