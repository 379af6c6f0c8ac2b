"""Batch sizes beyond 1: the stated profile, and that they help where one at a time no longer suffices."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bins.batches import HEAD, LADDERS, BatchesConfig, Found, Row, serve, stated, with_batches
from benchmarks.bins.published import BERT_BASE, EDGES
from benchmarks.bins.traces import missing
from pliant.errors import InputError
from tests.fixtures.bins.worlds import bins

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
CONFIG = BatchesConfig(devices=4, seconds=2.0)


def test_alone_a_text_takes_what_is_published_and_in_a_batch_what_its_tokens_take():
    made = stated(BERT_BASE)
    took = dict(zip(((s.length, s.batch) for s in made.shapes), made.seconds, strict=False))
    assert [took[edge, 1] for edge in EDGES] == pytest.approx([BERT_BASE.seconds(edge) for edge in EDGES])
    assert took[64, 8] == pytest.approx(took[128, 4]) == pytest.approx(took[512, 1])
    rates = [8 / took[length, 8] * took[length, 1] for length in (64, 512)]
    assert rates == pytest.approx([1.9, 1.13], abs=0.01)


def test_a_ladder_keeps_its_batches_of_every_length_and_their_seconds():
    whole = bins(batches=(1, 2, 4))
    kept = with_batches(whole, (1, 4))
    assert [(s.length, s.batch) for s in kept.shapes[:2]] == [(64, 1), (64, 4)]
    assert kept.seconds[:2] == (whole.seconds[0], whole.seconds[2]) and kept.shapes[-1] == whole.shapes[-1]


def test_a_profile_without_shapes_of_one_text_is_refused():
    with pytest.raises(InputError, match="of 1 text"):
        with_batches(bins(batches=(2, 4)), (1, 2, 4))


@needs_data
@pytest.mark.parametrize("placement", ["shared", "single"])
def test_under_overload_batches_serve_what_texts_one_by_one_do_not(placement):
    alone, batched = (serve(with_batches(stated(BERT_BASE), one), placement, 1.3, CONFIG, 0) for one in LADDERS)
    assert alone.requests == batched.requests and alone.batch == 1.0 < batched.batch
    assert batched.mean < 0.5 * alone.mean


@needs_data
def test_at_little_load_texts_run_alone():
    found = serve(stated(BERT_BASE), "shared", 0.3, CONFIG, 0)
    assert found.batch == pytest.approx(1.0, abs=0.01)
    assert found.violations == 0.0 and found.mean < 2 * BERT_BASE.seconds(128)


def test_the_table_takes_the_mean_over_seeds():
    rows = [Row("shared", 0.3, (1, 2), seed, 10, 0.001 + 0.002 * seed, 0.01, 0.5, np.sqrt(4)) for seed in (0, 1)]
    (line,) = Found("made up", CONFIG, tuple(rows)).table()
    assert line == ("shared", "0.3", "1, 2", "2.00", "10.0", "50.00%", "2.00") and len(line) == len(HEAD)
