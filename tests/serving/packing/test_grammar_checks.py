"""What a grammar takes is bounded before an engine gets it, and nobody waits for long behind another tenant's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pliant.errors import InputError, WorkerError
from pliant.packing.engine.grammar import KEPT_BYTES, Grammars
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing import grammar as module
from pliant.serving.packing import grammar as process
from pliant.serving.packing.grammar import GrammarChecks
from tests.fixtures.packing.fakes import new_tokenizer
from tests.fixtures.packing.hostile_grammars import hostile
from tests.serving.packing.test_output_form import grammar_of

TOKENIZER = new_tokenizer()
HONEST = 'start: "tea" | "shop"'
US, THEM = Client("us"), Client("them")
REFUSED = {"multipleOf a prime", "multipleOf several", "patterns together"}
"""Of which the library's own limits do not hold while they are compiled, or which it cannot compile."""


def grammars() -> Grammars:
    return Grammars(TOKENIZER.to_str(), TOKENIZER.get_vocab_size(), (0,))


@pytest.fixture
def patient(monkeypatch):
    """The tests' machine may be busy: only the processor's time counts."""
    monkeypatch.setattr(process, "WALL_SECONDS", 600.0)


def test_each_hostile_kind_is_refused_or_served_within_the_limits(patient) -> None:
    ours, found = grammars(), {}
    ours.load()
    for kind, fields in hostile().items():
        grammar = grammar_of(fields)[0]
        found[kind], _, seconds = process._try_apart(ours, grammar.encode(), module.SECONDS)
        assert seconds < module.SECONDS + 0.25, kind  # the rest is for the copy of the process
    assert len(found) == 20 and process.LATE not in found.values()
    assert {kind for kind, outcome in found.items() if outcome != process.FINE} >= REFUSED
    for kind, outcome in found.items():
        if outcome == process.FINE:
            ours.check(grammar_of(hostile()[kind])[0], kind)
    assert sum(size for _, size in ours._recent.values()) <= KEPT_BYTES
    assert process._try_apart(ours, HONEST.encode(), module.SECONDS)[0] == process.FINE


class Scripted:
    """A process that says what it is told to say of a grammar, at the first try and at the second."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers, self.asked = answers, list[tuple[str, float]]()

    async def call(self, _limit: float, body: list[bytes], seconds: float) -> Any:
        grammar = body[0].decode()
        self.asked.append((grammar, seconds))
        await asyncio.sleep(0)
        answer = self.answers[grammar].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, ("refused (so)", "another"), seconds

    def end(self) -> None: ...


def scripted(**answers: list[Any]) -> tuple[GrammarChecks, Scripted]:
    checks, helper = GrammarChecks(grammars()), Scripted(answers)
    checks._process = helper  # type: ignore[assignment]
    return checks, helper


def test_a_tenant_waits_for_one_grammar_of_another_and_slow_ones_wait_for_new_ones() -> None:
    async def order() -> list[str]:
        slow = {f"slow{at}": ["time", "time"] for at in range(30)}
        checks, helper = scripted(**slow, quick=["fine"], ours=["fine"])
        theirs = [asyncio.create_task(checks.check(name, "f", THEM)) for name in (*slow, "quick")]
        while len(helper.asked) < 40:  # their slow ones are being tried again
            await asyncio.sleep(0)
        before = len(helper.asked)
        await checks.check("ours", "f", US)
        names = [name for name, _ in helper.asked]
        failed = await asyncio.gather(*theirs, return_exceptions=True)
        assert [isinstance(error, InputError) for error in failed] == [True] * 30 + [False]
        assert names.index("ours") == before, "it came after the one that was being tried"
        return [name for name, _ in helper.asked]

    asked = asyncio.run(order())
    assert asked.index("quick") == 30, "after the first try of each"
    assert len(asked) == 30 * 2 + 2


def test_what_became_of_a_grammar_is_remembered() -> None:
    async def ask() -> None:
        checks, helper = scripted(bad=["refused"], good=["fine"], lost=[TimeoutError(), "fine"], busy=["late", "fine"])
        for _ in range(2):
            both = await asyncio.gather(*(checks.check("bad", "f", US) for _ in range(3)), return_exceptions=True)
            assert [str(error) for error in both] == ["f is refused (so), but must be another"] * 3
            await checks.check("good", "f", US)
        assert len(helper.asked) == 2
        checks.refuse("good")  # its texts took an engine too much time
        with pytest.raises(InputError, match="too complex"):
            await checks.check("good", "f", THEM)
        with pytest.raises(WorkerError):
            await checks.check("lost", "f", US)
        with pytest.raises(ApiError, match="no time"):
            await checks.check("busy", "f", US)
        await asyncio.gather(checks.check("lost", "f", US), checks.check("busy", "f", US))

    asyncio.run(ask())


def test_a_tenant_has_a_limited_number_waiting_and_none_is_left_when_it_stops() -> None:
    async def ask() -> None:
        names = [f"g{at}" for at in range(module.MOST_WAITING)]
        checks, _ = scripted(ours=["fine"], **{name: ["fine"] for name in names})
        asked = [asyncio.create_task(checks.check(name, "f", THEM)) for name in names]
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="full") as full:
            await checks.check("more", "f", THEM)
        assert full.value.status == 429
        ours = asyncio.create_task(checks.check("ours", "f", US))
        await asyncio.sleep(0)
        checks.stop()
        await asyncio.wait_for(asyncio.gather(*asked, ours), 1)

    asyncio.run(ask())


def test_memory_and_time_of_a_try_are_limited_and_the_process_goes_on(patient) -> None:
    """A grammar that takes too much is told apart by what it took too much of."""

    class Greedy(Grammars):
        def load(self) -> None: ...

        def try_out(self, grammar: str, name: str) -> None:
            held = []
            while grammar == "time" or (grammar == "memory" and len(held) < 1000):
                held += [bytearray(1 << 20)] if grammar == "memory" else []

    tried = {what: process._try_apart(Greedy("", 1, ()), what.encode(), 2.0) for what in ("time", "memory", "good")}
    assert {what: outcome for what, (outcome, _, _) in tried.items()} == {
        "time": "time",
        "memory": "memory",
        "good": "fine",
    }
