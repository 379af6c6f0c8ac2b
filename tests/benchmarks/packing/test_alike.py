"""Prompts that begin alike make the same texts with and without sharing, and read their beginning once with it."""

from __future__ import annotations

from pliant.benchmarks.packing import alike
from pliant.benchmarks.packing.alike import AFTER, TOGETHER

SECONDS = {(TOGETHER, False): 4.0, (TOGETHER, True): 1.0, (AFTER, False): 2.0, (AFTER, True): 0.1}


def test_a_common_beginning_is_read_once_and_the_texts_stay_the_same(monkeypatch) -> None:
    monkeypatch.setattr(alike, "ALIKE", 64)
    result = alike.measure(prompts=3, hidden=64)
    read = {(row.arrivals, row.sharing): row.read for row in result.rows}
    whole = 3 * (64 + alike.OWN)
    assert read[TOGETHER, False] == read[AFTER, False] == whole
    assert read[TOGETHER, True] == read[AFTER, True] == whole - 2 * 64
    assert result.targets()[2].measured == 0
    assert len({row.pages for row in result.rows if row.arrivals == TOGETHER}) == 2
