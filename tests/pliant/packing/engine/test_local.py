"""Plans run in Pliant's own engine, and transformers' scheduler in transformers' engine."""

from __future__ import annotations

from types import SimpleNamespace

from pliant.packing.engine import local
from pliant.packing.scheduling.request import Memory

MEMORY = Memory(4, 16)
MODEL = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=40)))


def test_plans_run_in_our_own_engine(monkeypatch) -> None:
    monkeypatch.setattr(local, "PagedEngine", lambda *given: ("ours", *given))
    assert local.local_engine(MODEL, MEMORY, grammars="grammars") == ("ours", MODEL, MEMORY, True, "grammars")
    assert local.local_engine(MODEL, MEMORY, False) == ("ours", MODEL, MEMORY, False, None)


def test_transformers_scheduler_runs_in_its_own_engine_and_draws_only_if_asked_to(monkeypatch) -> None:
    monkeypatch.setattr(local, "ContinuousBatchingEngine", lambda *given: ("theirs", *given))
    monkeypatch.setattr(local, "processors", lambda vocabulary: f"draws from {vocabulary}")
    assert local.local_engine(MODEL, MEMORY, True, 0.0) == ("theirs", MODEL, MEMORY, "draws from 40", 0.0)
    assert local.local_engine(MODEL, MEMORY, False, 0.25) == ("theirs", MODEL, MEMORY, (), 0.25)
