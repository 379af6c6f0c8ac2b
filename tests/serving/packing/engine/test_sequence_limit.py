"""After a lack of memory an engine takes half of the sequences that it had, down to one."""

from __future__ import annotations

from serving.packing.engine.sequence_limit import SequenceLimit


def test_each_lack_of_memory_halves_what_ran_and_one_alone_stays():
    seen = []
    limit = SequenceLimit(64, lambda changed: seen.append((changed.value, changed.exhausted)))
    assert limit.value == 64
    assert [limit.lower(running) for running in (64, 11, 0, 2, 1, 9)] == [True] * 4 + [False] * 2
    assert seen == [(32, 1), (5, 2), (2, 3), (1, 4), (1, 5), (1, 6)]
    assert (limit.value, limit.planned, limit.exhausted) == (1, 64, 6)
