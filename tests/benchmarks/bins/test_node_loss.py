"""What a journal says of the loss of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.benchmarks.bins.nodes import NEVER, Reply, _replanned, head_loss
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, JournalEntry, Launch, Request, Result, Woke
from pliant.serving.driver import Completed, Rejected

SHORT, LONG = 0, 1  # settings
LOST, OTHER = 2, 1  # workers


def entry(now: float, worker: int, setting: int, kind: str = "run") -> JournalEntry:
    return JournalEntry(now, Woke(), (Launch(round(100 * now), worker, (), setting, kind),))


BEFORE = [
    entry(0.1, LOST, SHORT, "load"),
    entry(0.2, LOST, LONG, "load"),
    entry(0.3, LOST, LONG),
    entry(0.3, OTHER, LONG),
]


@pytest.mark.parametrize(
    "after, at",
    [
        ([entry(1.1, OTHER, LONG, "load")], 1.1),
        ([entry(1.1, OTHER, SHORT), entry(1.2, OTHER, LONG)], 1.2),  # it held the same runtime already
        ([entry(1.1, OTHER, SHORT), entry(1.2, OTHER, SHORT, "load"), entry(1.3, LOST, LONG)], NEVER),
        ([entry(1.0, LOST, SHORT, "restart"), entry(1.1, OTHER, SHORT)], NEVER),
    ],
)
def test_a_lost_runtime_is_made_up_for_by_its_load_or_its_run_on_another_device_alone(after, at):
    assert _replanned([*BEFORE, *after], 1.0, LOST, "single") == at


def test_the_loss_of_the_head_counts_answers_that_are_missing_and_launches_that_failed():
    request = Request(0, 0.0, 9.0, "text")
    journal = [
        JournalEntry(0.0, Arrived(request), (Launch(0, OTHER, (0,)),)),
        JournalEntry(0.5, Arrived(replace(request, id=1)), (Launch(1, LOST, (1,)),)),
        JournalEntry(1.0, Finished(0, 1.0, (Result(0),)), (Answer(0, 0),)),
        JournalEntry(1.5, Failed(1, "the head was away"), (Drop(1, "failed"),)),
    ]
    replies = [Reply(7, Completed((8, 0.0), 0, 1, 0.0, 1.0, -1.0)), Reply(9, Rejected("failed"))]
    got = head_loss(journal, replies, 300.0)
    assert (got.accepted, got.answered, got.refused, got.unanswered, got.wrong, got.failed) == (2, 1, 1, 0, 1, 1)
    assert [(target.measured, target.met) for target in got.targets()] == [(1, False)] * 3
    assert head_loss(journal[::2], replies[:1], 300.0).targets()[0].met
    assert not head_loss(journal[::2], [], 300.0).targets()[0].met, "who got nothing was not answered"
