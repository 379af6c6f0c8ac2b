"""Bins that are loaded by MLflow name the fastest runtime that takes the texts, and what they are padded to."""

from __future__ import annotations

import pandas as pd
import pytest

from pliant.errors import InputError
from registry import codec
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.pyfunc import served


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """Static runtimes for 16 and 64 tokens and 1, 2 or 4 texts; a dynamic launch takes 2 ms and 20 us a token."""
    folder = tmp_path_factory.mktemp("bins")
    codec.save(some_bins(), folder)
    return served("bins-plan", folder)[1]


@pytest.mark.parametrize(
    ("length", "batch", "milliseconds", "padded", "runtime"),
    [
        (5, 1, (2 + 0.32) / 2, (16, 1), "static"),  # half of a dynamic launch of 16 tokens
        (16, 1, (2 + 0.32) / 2, (16, 1), "static"),
        (16, 2, (2 + 0.64) / 2, (16, 2), "static"),
        (16, 3, (2 + 1.28) / 2, (16, 4), "static"),
        (17, 1, (2 + 1.28) / 2, (64, 1), "static"),  # 2.34 without padding
        (20, 3, 2 + 1.2, (20, 3), "dynamic"),  # 3.56 padded to 4 of 64
        (64, 4, (2 + 5.12) / 2, (64, 4), "static"),
    ],
)
def test_the_fastest_runtime_that_is_large_enough_is_named_with_what_it_takes(
    plan, length, batch, milliseconds, padded, runtime
):
    (row,) = plan.predict(pd.DataFrame({"length": [length], "batch": [batch]})).to_dict("records")
    assert row == {
        "seconds": pytest.approx(milliseconds / 1000),
        "padded_length": padded[0],
        "padded_batch": padded[1],
        "runtime": runtime,
    }


def test_rows_are_answered_in_their_order(plan):
    frame = plan.predict(pd.DataFrame({"length": [64, 5, 20], "batch": [4, 1, 3]}))
    assert list(frame["padded_length"]) == [64, 16, 20]


@pytest.mark.parametrize(("length", "batch"), [(0, 1), (65, 1), (1, 0), (1, 5)])
def test_texts_that_no_runtime_takes_are_refused_with_the_limits(plan, length, batch):
    limits = f"texts is {batch} of {length} tokens, but must be 1 to 4 of 1 to 64"
    with pytest.raises(InputError, match=limits):
        plan.predict(pd.DataFrame({"length": [5, length], "batch": [1, batch]}))


def test_texts_longer_than_any_static_runtime_go_to_the_dynamic_one(tmp_path):
    codec.save(some_bins(edges=(16,)), tmp_path)
    frame = served("bins-plan", tmp_path)[1].predict(pd.DataFrame({"length": [30, 64], "batch": [1, 4]}))
    assert list(frame["runtime"]) == ["dynamic", "dynamic"]
    assert list(frame["seconds"]) == pytest.approx([0.002 + 2e-5 * 30, 0.002 + 2e-5 * 64 * 4])
