"""The stand-in of an engine that decisions are measured beside."""

from __future__ import annotations

from pliant.benchmarks.packing.vllm import decisions
from pliant.benchmarks.packing.vllm.decisions import DecisionConfig
from pliant.packing.scheduling.request import Memory
from pliant.packing.vllm.decisions import Decisions
from pliant.packing.vllm.settings import Settings


def test_as_many_run_and_wait_as_was_said():
    cost = decisions.measure(DecisionConfig(running=8, waiting=20, steps=60, warmup=20))
    assert 7 < cost.running <= 8
    assert 20 <= cost.waiting < 21
    assert 0 < cost.p50 <= cost.p99


def test_the_engine_does_what_was_planned_also_where_memory_binds():
    config = DecisionConfig(running=16, waiting=20)
    books = Decisions(Settings().rules(decisions.CONTEXT), Memory(150, 16, step_tokens=64, sequences=16))
    engine = decisions._Engine(books, config)
    for _ in range(36):
        engine.arrive()
    for step in range(600):
        engine.step(0.02 * step)
        books.scheduler.check()
    assert books.deviations == 0
    assert engine.number > 36
