"""The scheduler's event rate, measured with a queue as long as was asked for."""

from __future__ import annotations

import pytest

from benchmarks.tokens.scheduler import event_rate
from pliant.errors import InputError
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from tests.fixtures.load_samples import bundle


def known():
    made = bundle()
    return tokens_knowledge(made.profile, made.tasks)


@pytest.mark.parametrize("depth", [1.0, 4.0])
def test_at_least_as_many_batches_wait_as_were_asked_for(depth):
    found = event_rate(known(), depth, seconds=1.0, repeats=1)
    assert found.depth >= depth
    assert found.per_second > 0
    assert found.events > 100


def test_a_depth_that_the_scheduler_never_holds_is_refused():
    """It once doubled the load until the memory was full."""
    with pytest.raises(InputError, match=r"depth is 40\.0"):  # 2048 requests are 32 batches
        event_rate(known(), 40.0, seconds=0.2, repeats=1)
