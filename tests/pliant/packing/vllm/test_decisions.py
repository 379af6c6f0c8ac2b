"""The scheduler's books follow an engine that does otherwise than planned, and every request ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.journal import decode, encode, replay
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.vllm.decisions import Decisions, State
from tests.fixtures.packing.deviating import DeviatingEngine, Deviations, Sequence
from tests.fixtures.packing.samples import policies, prompt, seeds

MOST = 4000  # steps
WHIMS = st.builds(
    Deviations,
    refuse=st.sampled_from((0.0, 0.3)),
    find=st.sampled_from((0.0, 0.5)),
    chunk=st.sampled_from((0.0, 0.3)),
    pause=st.sampled_from((0.0, 0.1)),
    reset=st.sampled_from((0.0, 0.05)),
    ahead=st.integers(0, 2),
    short=st.sampled_from((0, 3)),
)


def play(
    seed: int, policy: str, deviations: Deviations, aborts: float = 0.0, deadlines: float = 0.0, prefixes: bool = False
):
    """Return the engine, the decisions and the journal when every request has ended."""
    rng = np.random.default_rng(seed)
    context, page = int(rng.integers(16, 80)), int(rng.integers(1, 9))
    memory = Memory(
        -(-context // page) + deviations.short + int(rng.integers(0, 40)), page, 0, *rng.integers(4, 40, 2).tolist()
    )
    rules, journal = Rules(policy, context), []
    decisions = Decisions(rules, memory, lambda *entry: journal.append(entry))
    engine, coming, now, steps = DeviatingEngine(decisions, memory, deviations, rng), int(rng.integers(1, 30)), 0.0, 0
    while coming or engine.requests:
        while coming and rng.random() < 0.4:
            coming -= 1
            _arrive(engine, decisions, f"r{coming}", now, context, rng, deadlines, prefixes)
        engine.step(now)
        now, steps = now + 0.25, steps + 1
        if engine.requests and rng.random() < aborts:
            engine.end(str(rng.choice(list(engine.requests))), "aborted")
        assert steps < MOST, "no end of it"
    decisions.decide(now)
    decisions.scheduler.check()
    return engine, decisions, journal, PackingScheduler(rules, memory)


def _arrive(engine, decisions, name, now, context, rng, deadlines, prefixes):
    tokens = int(rng.integers(1, context))
    limit = int(rng.integers(1, context - tokens + 1))
    length = int(rng.integers(1, limit + 1))
    beginnings = ()
    if prefixes:
        pages = (tokens - 1) // decisions.scheduler.memory.page_tokens
        own = 100 * len(engine.requests)
        beginnings = (*range(min(pages, 4)), *range(own + 100, own + 96 + pages))
    request = prompt(
        0,
        tokens,
        limit,
        sorted(map(float, rng.integers(1, context, 8))),
        arrival=now,
        bucket=int(rng.integers(0, limit + 1)),
        exact=length,
        deadline=now + float(rng.exponential(5)) if rng.random() < deadlines else FOREVER,
        beginnings=beginnings,
    )
    engine.requests[name] = Sequence(tokens, limit, length)
    decisions.arrive(name, request)


@given(seeds, policies, WHIMS)
def test_whatever_the_engine_does_every_request_ends_and_the_journal_decides_the_same_again(seed, policy, deviations):
    engine, decisions, journal, fresh = play(seed, policy, deviations)
    assert set(engine.ended.values()) == {"finished"}
    assert (len(decisions), decisions.scheduler.running, decisions.scheduler.waiting) == (0, 0, 0)
    assert replay(fresh, journal) == journal
    assert [decode(encode(*entry)) for entry in journal] == journal


@given(seeds, policies, WHIMS)
def test_aborts_deadlines_and_common_beginnings_leave_nothing_behind(seed, policy, deviations):
    engine, decisions, journal, fresh = play(seed, policy, deviations, aborts=0.1, deadlines=0.3, prefixes=True)
    assert set(engine.ended.values()) <= {"finished", "aborted", "late"}
    assert (len(decisions), decisions.scheduler.running, decisions.scheduler.waiting) == (0, 0, 0)
    assert replay(fresh, journal) == journal


@given(seeds, policies, st.integers(0, 2))
def test_an_engine_that_does_as_planned_is_not_corrected(seed, policy, ahead):
    """Unless it works ahead, or one comes back: that one reads first in the books, and behind the running ones there."""
    _, decisions, journal, _ = play(seed, policy, Deviations(ahead=ahead))
    if not ahead and not any(plan.discarded for _, _, plan in journal):
        assert decisions.deviations == 0
        assert not any(step_input.corrected for _, step_input, _ in journal)


def engaged(policy: str = "paged", **rest):
    """Return decisions with one running request of 10 tokens that has just read them all."""
    decisions = Decisions(Rules(policy, 64), Memory(16, 4, **rest))
    decisions.arrive("a", prompt(0, 10, 20, exact=9))
    step = decisions.decide(0.0)
    assert step.admitted == ("a",) and step.reading == {"a": 10}
    decisions.report(step, ["a"], {"a": 10}, lambda name: State(10, 11))
    return decisions


def test_there_is_plenty_of_room_while_nobody_waits_and_half_the_pages_stay_free():
    decisions = engaged()  # three of 16 pages
    assert decisions.roomy([8, 12]) and not decisions.roomy([8, 13])
    decisions.arrive("b", prompt(1, 10, 20))
    assert not decisions.roomy([1]), "one has come, and nothing is decided yet"
    crowded = Decisions(Rules("paged", 64), Memory(16, 4, sequences=1))
    for name in "ab":
        crowded.arrive(name, prompt(0, 4, 4))
    crowded.decide(0.0)
    assert not crowded.roomy([1]), "one waits"


def test_a_late_request_is_dropped_once_and_forgotten():
    decisions = Decisions(Rules("paged", 64), Memory(16, 4))
    decisions.arrive("a", prompt(0, 10, 20, deadline=0.5))
    decisions.report(decisions.decide(0.0), ["a"], {"a": 10}, lambda name: State(10, 11))
    assert decisions.decide(0.6).dropped == ("a",)
    assert "a" not in decisions
    decisions.end("a", 1, False)
    assert decisions.decide(0.7).dropped == ()


def test_a_request_that_can_never_run_is_refused_and_leaves_no_trace():
    decisions = Decisions(Rules("oracle", 64), Memory(16, 4))
    with pytest.raises(InputError, match="exact"):
        decisions.arrive("a", prompt(0, 10, 20))
    assert "a" not in decisions and not decisions.decide(0.0).admitted


def test_the_limit_fits_into_context_and_memory():
    decisions = Decisions(Rules("paged", 100), Memory(16, 4))
    assert decisions.longest(10, 30) == 30
    assert decisions.longest(10, 99) == 54  # 64 tokens of memory
    assert Decisions(Rules("paged", 32), Memory(16, 4)).longest(10, 99) == 22
    assert decisions.longest(64, 5) == 1


@pytest.mark.parametrize("seen", [False, True])
def test_a_forecast_that_comes_late_counts_for_who_has_not_run(seen):
    journal = []
    decisions = Decisions(
        Rules("default", 64, reorder_patience=9.0), Memory(8, 4), lambda *entry: journal.append(entry)
    )
    decisions.arrive("runs", prompt(0, 12, 16, 16.0))
    decisions.decide(0.0)
    for name in ("long", "short"):
        decisions.arrive(name, prompt(0, 12, 16, 16.0, arrival=0.1))
    if seen:
        decisions.decide(0.1)
    decisions.reforecast("short", (2.0,) * 8, 3)
    decisions.reforecast("runs", (2.0,) * 8, 3)  # it runs already
    decisions.reforecast("nobody", (2.0,) * 8, 3)
    decisions.decide(0.2)
    arrived = journal[-1][1].arrived
    assert [(each.id, each.forecast[0], each.bucket) for each in arrived if each.id == 2] == [(2, 2.0, 3)]
    assert journal[-1][1].cancelled == ((2,) if seen else ())
    decisions.end("runs", 3, finished=True)
    decisions.end("long", 0, finished=False)
    assert decisions.decide(0.3).admitted == ("short",)
    decisions.reforecast("short", (9.0,) * 8, 0)
    assert decisions.decide(0.4).admitted == () and journal[-1][1].arrived == ()
    decisions.scheduler.check()
