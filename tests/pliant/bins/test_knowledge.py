"""What a scheduler knows is what the artifacts say: shapes, costs, classes of length; invalid artifacts are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.knowledge import RUNTIMES, knowledge_of
from pliant.errors import InputError
from tests.fixtures.bins.loads import batch, known
from tests.fixtures.bins.scenarios import bins, cost

MAIL, CHAT = bins("mail", batches=(1, 4)), bins("chat", (32, 128), (2,), slo=0.05)


def lengths(runtimes: str, placement: str) -> list[tuple[int, bool]]:
    return [(runtime.length, runtime.table is None) for runtime in knowledge_of([MAIL], runtimes, placement).runtimes]


def test_the_runtimes_that_are_used_are_those_asked_for():
    static = [(length, True) for length in (64, 128, 256, 512)]
    assert lengths("all", "shared") == [*static, (512, False)]
    assert lengths("all", "single") == static
    assert lengths("static", "shared") == static
    assert lengths("longest", "shared") == [(512, True)]
    assert lengths("dynamic", "single") == [(512, False)]


@given(st.integers(0, 512), st.integers(1, 8), st.sampled_from([(1,), (1, 2, 8), ()]), st.sampled_from(RUNTIMES))
def test_a_cost_is_that_of_the_fastest_shape_that_takes_the_texts(length, texts, batches, runtimes):
    knowledge = known("shared", 1, batches, runtimes)
    (stream,) = knowledge.streams
    fits = []
    for runtime in knowledge.runtimes:
        for setting in runtime.settings:
            if runtime.length >= length and batch(runtime, setting) >= texts:
                rows = texts if runtime.table else batch(runtime, setting)
                fits.append(runtime.table.between(length, rows) if runtime.table else cost(runtime.length, rows))
    if not fits:
        with pytest.raises(InputError, match="texts"):
            stream.cost(length, texts)
        assert texts > stream.max_batch_of(length)
        return
    assert stream.cost(length, texts)[1] == pytest.approx(min(fits))
    assert texts <= stream.max_batch_of(length)


# Artifacts


def test_shares_are_those_of_the_observed_lengths_by_the_shortest_runtime_that_is_long_enough():
    seen = np.zeros(513, np.int64)
    seen[[0, 64, 65, 512]] = 1, 2, 3, 2
    (stream,) = knowledge_of([replace(MAIL, lengths=seen)], "static").streams
    assert stream.shares == (3 / 8, 3 / 8, 0.0, 2 / 8)
    (unseen,) = knowledge_of([replace(MAIL, lengths=np.zeros(513, np.int64))], "static").streams
    assert unseen.shares == (0.25,) * 4
