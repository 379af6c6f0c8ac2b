"""Fallbacks: logged where nobody collects them, and taken once by the newest collector."""

from __future__ import annotations

from pliant import fallbacks
from pliant.fallbacks import Collector, Fallback


def test_a_fallback_is_logged_as_a_warning(caplog):
    fallbacks.note("memory", "batches of 64 do not fit: 100%")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", "batches of 64 do not fit: 100%")]


def test_a_collector_takes_each_fallback_once():
    collector = Collector()
    fallbacks.note("memory", "batches of 64 do not fit")
    fallbacks.note("capture", "no graph")
    assert collector.take() == (Fallback("memory", "batches of 64 do not fit"), Fallback("capture", "no graph"))
    assert collector.take() == ()


def test_the_newest_collector_of_a_process_gets_them():
    former, present = Collector(), Collector()
    fallbacks.note("capture", "no graph")
    assert (len(former.take()), len(present.take())) == (0, 1)
