"""The form of outputs becomes a grammar that is tried out first: within limits, and nobody waits for long behind another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pliant.errors import InputError, WorkerError
from pliant.packing.engine.grammar import KEPT_BYTES, Grammars
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing import grammar as module
from pliant.serving.packing.bodies import FORM_CHARACTERS, CompletionBody
from pliant.serving.packing.grammar import GrammarChecks
from pliant.serving.packing.request import output_grammar
from tests.fixtures.packing.fakes import new_tokenizer
from tests.fixtures.packing.hostile_grammars import hostile
from tests.fixtures.packing.in_process import error_of
from tests.serving.packing.test_bodies import DEEP

TOKENIZER = new_tokenizer()
GRAMMARS = Grammars(TOKENIZER.to_str(), TOKENIZER.get_vocab_size(), (0,))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def grammar_of(fields: dict) -> tuple[str, str]:
    body = CompletionBody.read({"prompt": "a", **fields})
    return output_grammar(body.response_format, body.structured_outputs)


def allows(fields: dict, text: str) -> bool:
    """Whether the grammar lets a text come, and end there."""
    grammar, name = grammar_of(fields)
    GRAMMARS.try_out(grammar, name)
    matcher = GRAMMARS._compiled(grammar).deep_copy()
    return matcher.consume_tokens([*TOKENIZER.encode(text).ids, 0])


def schema(value) -> dict:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": value, "strict": True}}}


def structured(**value) -> dict:
    return {"structured_outputs": value}


@pytest.mark.parametrize(
    ("fields", "allowed", "excluded"),
    [
        ({"response_format": {"type": "json_object"}}, ['{"a": [1, null]}', "{}"], ["[]", "tea", '{"a":1}', "{ }"]),
        ({"response_format": {"type": "json_object", "value": SCHEMA}}, ['{"a": ""}'], ["{}", '{"b": ""}']),
        ({"response_format": {"type": "json_object", "value": None}}, ["{}"], ["[]"]),
        (schema(SCHEMA), ['{"a": "é 🙂"}'], ["{}", '{"b": ""}', '{"a": 7}', '{"a": "x"} ']),
        (schema(True), ["7", '"tea"'], ["tea"]),
        (structured(json=SCHEMA), ['{"a": ""}'], ["{}"]),
        (structured(json=json.dumps({"type": "integer"})), ["-12"], ["1.5"]),
        (structured(json_object=True), ["{}"], ["7"]),
        (structured(regex="[a-c]+/x\\d"), ["abc/x7"], ["abc/x", "d/x7"]),
        (structured(regex=r"a\/b|c\\/d"), ["a/b", "c\\/d"], ["a\\/b"]),
        (structured(regex="a\nb"), ["a\nb"], ["a", "a b"]),
        (
            structured(choice=["tea", "cake", 'a "\n🙂'], json=None, json_object=False),
            ["tea", 'a "\n🙂'],
            ["te", "cat"],
        ),
        (structured(grammar='start: "a"+ "b"'), ["aab"], ["b"]),
    ],
)
def test_a_form_allows_what_it_says_and_nothing_else(fields, allowed, excluded):
    assert all(allows(fields, text) for text in allowed)
    assert not any(allows(fields, text) for text in excluded)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_object", "value": "a"}}, "response_format.value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (schema("it"), "response_format.json_schema.schema"),
        (schema({"enum": ["x" * FORM_CHARACTERS]}), "response_format.json_schema.schema"),
        (schema(DEEP), "response_format.json_schema.schema"),
        (structured(), "structured_outputs"),
        (structured(json={}, regex="a"), "structured_outputs"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({**structured(regex="a"), "response_format": {"type": "json_object"}}, "structured_outputs"),
        (structured(json="{"), "structured_outputs.json"),
        (structured(json=7), "structured_outputs.json"),
        (structured(regex=7), "structured_outputs.regex"),
        (structured(choice=["a", ""]), "structured_outputs.choice[1]"),
        (structured(choice=["x" * FORM_CHARACTERS, "y"]), "structured_outputs.choice"),
    ],
)
def test_a_form_that_cannot_be_read_is_named(fields, name):
    with pytest.raises(InputError) as refused:
        grammar_of(fields)
    assert refused.value.field == name


def test_the_grammar_reaches_the_engine_with_every_output(service):
    response = service.chat(**schema(SCHEMA), n=2)
    assert response.status_code == 200
    sent = [arguments[0] for verb, arguments in service.worker.sent if verb == "submit"][-2:]
    assert {submission.sampling.grammar for submission in sent} == {grammar_of(schema(SCHEMA))[0]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (schema({"type": "objekt"}), "response_format"),
        (schema({"$ref": "#/missing"}), "response_format"),
        (structured(regex="("), "structured_outputs"),
        (structured(grammar="start: missing"), "structured_outputs"),
        ({**schema(SCHEMA), "ignore_eos": True}, "ignore_eos"),
        ({**schema(SCHEMA), "min_tokens": 3}, "min_tokens"),
    ],
)
def test_a_form_that_cannot_be_compiled_is_refused_in_openais_shape(service, fields, param):
    response = service.complete(**fields)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, param, "invalid_value")


HONEST = 'start: "tea" | "shop"'
US, THEM = Client("us"), Client("them")
REFUSED = {"multipleOf a prime", "multipleOf several", "patterns together"}
"""Of which the library's own limits do not hold while they are compiled, or which it cannot compile."""


def grammars() -> Grammars:
    return Grammars(TOKENIZER.to_str(), TOKENIZER.get_vocab_size(), (0,))


@pytest.fixture
def patient(monkeypatch):
    """The tests' machine may be busy: only the processor's time counts."""
    monkeypatch.setattr(module, "WALL_SECONDS", 600.0)


def test_each_hostile_kind_is_refused_or_served_within_the_limits(patient) -> None:
    ours, found = grammars(), {}
    ours.load()
    for kind, fields in hostile().items():
        grammar = grammar_of(fields)[0]
        found[kind], _, seconds = module._try_apart(ours, grammar.encode(), module.SECONDS)
        assert seconds < module.SECONDS + 0.25, kind  # the rest is for the copy of the process
    assert len(found) == 20 and module.LATE not in found.values()
    assert {kind for kind, outcome in found.items() if outcome != module.FINE} >= REFUSED
    for kind, outcome in found.items():
        if outcome == module.FINE:
            ours.check(grammar_of(hostile()[kind])[0], kind)
    assert sum(size for _, size in ours._recent.values()) <= KEPT_BYTES
    assert module._try_apart(ours, HONEST.encode(), module.SECONDS)[0] == module.FINE


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

    tried = {what: module._try_apart(Greedy("", 1, ()), what.encode(), 2.0) for what in ("time", "memory", "good")}
    assert {what: outcome for what, (outcome, _, _) in tried.items()} == {
        "time": "time",
        "memory": "memory",
        "good": "fine",
    }
