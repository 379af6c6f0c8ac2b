"""What a journal says of the loss of a node."""

from __future__ import annotations

import pytest

from pliant.benchmarks.bins.nodes import NEVER, _replanned
from pliant.protocol import JournalEntry, Launch, Woke

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
