"""Alarms start a run at most so often; one that no run has answered is answered later, and never forgotten."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pliant.flows.watch.triggered import FormerRun, decide

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def minutes(count: float) -> datetime:
    return START + timedelta(minutes=count)


def former(started: float, *, completed: bool = True, skipped: bool = False, alarm: bool = True) -> FormerRun:
    return FormerRun(f"id-{started}", f"run-{started}", minutes(started), completed, skipped, alarm)


def test_a_run_that_began_after_the_alarm_and_completed_has_answered_it():
    decision = decide(minutes(0), minutes(90), HOUR, [former(5, alarm=False)])
    assert decision.sentence == "The alarm was answered by the run run-5, which began after it."
    assert decision.at is None


def test_a_run_that_began_before_the_alarm_has_not_answered_it_and_another_one_follows():
    decision = decide(minutes(20), minutes(40), HOUR, [former(10)])
    assert (decision.at, decision.after) == (minutes(70), "id-10")
    assert "another one follows at 01:10 UTC" in decision.sentence


def test_a_run_that_failed_has_answered_nothing_but_counts_against_the_next_one():
    failed = former(10, completed=False)
    assert decide(minutes(5), minutes(40), HOUR, [failed]).at == minutes(70)
    assert decide(minutes(5), minutes(71), HOUR, [failed]).sentence == ""


def test_a_run_that_began_under_a_clock_a_day_ahead_answers_no_later_alarm():
    tomorrow = former(24 * 60, alarm=False)
    assert decide(minutes(10), minutes(11), HOUR, [tomorrow]).sentence == ""
    assert decide(minutes(10), minutes(11), HOUR, [former(24 * 60)]).sentence == ""


@given(st.lists(st.floats(0, 600), min_size=1, max_size=30), st.floats(0, 5))
def test_runs_are_at_least_an_hour_apart_and_every_alarm_is_followed_by_one(alarms, lasts):
    """Prefect's part in virtual time: one run at a time, each in its turn, and one that follows a run is one only."""
    queue, worked, followed, free = sorted((moment, moment) for moment in alarms), [], set(), 0.0
    while queue:
        due, created = queue.pop(0)
        now = max(due, free)
        decision = decide(minutes(created), minutes(now), HOUR, worked)
        if decision.sentence:
            if decision.at is not None and decision.after not in followed:
                followed.add(decision.after)
                later = (decision.at - START).total_seconds() / 60
                queue = sorted([*queue, (later, now)])
            continue
        worked.append(former(now))
        free = now + lasts
    starts = [(run.started - START).total_seconds() / 60 for run in worked]
    assert all(later - earlier >= 60 - 1e-4 for earlier, later in itertools.pairwise(starts))
    assert all(any(start >= moment - 1e-4 for start in starts) for moment in alarms)
    assert len(starts) <= max(alarms) // 60 + 2
