"""The paper's latency facts hold in the model made of them."""

from __future__ import annotations

import pytest

from benchmarks.bins.published import BERT_BASE, BERT_LARGE, FLOPS


def test_the_facts_told_of_bert_base_hold():
    assert BERT_BASE.seconds(512) == 0.00486
    assert BERT_BASE.seconds(512) / BERT_BASE.seconds(20) == pytest.approx(4.28)
    assert BERT_BASE.seconds(512) / BERT_BASE.seconds(64) == pytest.approx(4.22)
    assert BERT_BASE.slo == 0.150


def test_the_fact_told_of_bert_large_holds_and_its_size_is_that_of_its_work():
    assert BERT_LARGE.seconds(512) / BERT_LARGE.seconds(64) == pytest.approx(5.25)
    assert BERT_LARGE.seconds(512) / BERT_BASE.seconds(512) == pytest.approx(FLOPS)
    assert 3.3 < FLOPS < 3.6
    assert BERT_LARGE.slo == 0.450
