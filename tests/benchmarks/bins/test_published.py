"""The paper's latency facts hold in the model made of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.bins.published import BERT_BASE, BERT_LARGE, DYNAMIC, EDGES, FLOPS
from pliant.errors import InputError


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


@pytest.mark.parametrize("model", [BERT_BASE, BERT_LARGE])
def test_static_latency_is_a_staircase_and_dynamic_latency_has_no_steps(model):
    for below, edge in pairwise(EDGES):
        assert model.seconds(below) < model.seconds(below + 1) == model.seconds(edge)
        middle = (model.dynamic_seconds(below) + model.dynamic_seconds(edge)) / 2
        assert model.dynamic_seconds((below + edge) / 2) == pytest.approx(middle)
    for edge in EDGES:
        assert model.dynamic_seconds(edge) / model.seconds(edge) == pytest.approx(DYNAMIC[0])


@pytest.mark.parametrize("length", [0, 513])
def test_lengths_beyond_what_is_told_are_refused(length):
    with pytest.raises(InputError, match="length"):
        BERT_BASE.seconds(length)
