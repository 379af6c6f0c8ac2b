"""Answers have calls of tools in OpenAI's shape, and conversations go on behind them."""

from __future__ import annotations

import json

import pytest

from pliant.packing.scheduling.request import Memory
from pliant.serving.packing import schemas
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.fakes import TALE, new_tokenizer
from tests.fixtures.packing.in_process import error_of, events, generator, publish, serving
from tests.fixtures.registry import FolderRegistry
from tests.serving.packing.test_bodies import tool

BOTH = [tool(parameters={"type": "object", "properties": {"a": {"type": "integer"}}}), {"function": {"name": "stop"}}]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish(registry, memory=Memory(pages=512, page_tokens=4), model=generator(context=1024))
    with serving(registry) as service:
        yield service


@pytest.fixture
def saying(service):
    """Have the engine say something else than the tale."""

    def say(text):
        service.worker.engine.tale = new_tokenizer().encode(text).ids

    yield say
    say(TALE)


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>'


def test_calls_are_answered_in_openais_shape(service, saying):
    saying(f"Well. {CALL}\n{CALL}")
    response = service.chat(tools=BOTH, parallel_tool_calls=True)
    (choice,) = response.json()["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == ("Well. ", "tool_calls")
    first, second = message["tool_calls"]
    assert first["function"] == second["function"] == {"name": "add", "arguments": '{"a": 3}'}
    assert first["type"] == "function" and first["id"] != second["id"]
    check_answer(schemas.ChatCompletion, response.json())
    saying(CALL)
    assert service.chat(tools=BOTH).json()["choices"][0]["message"]["content"] is None


def test_a_stream_has_each_call_in_one_chunk(service, saying):
    saying(f"Well. {CALL}\n{CALL}")
    *chunks, done = events(service.chat(tools=BOTH, stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Well. "
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(call["index"], json.loads(call["function"]["arguments"])) for call in calls] == [
        (0, {"a": 3}),
        (1, {"a": 3}),
    ]
    assert (chunks[-1]["choices"][0]["finish_reason"], done) == ("tool_calls", "[DONE]")


def test_what_must_be_called_is_a_grammar_for_the_engine(service):
    named = {"type": "function", "function": {"name": "add"}}
    for choice, grammar in (("required", True), (named, True), ("auto", False)):
        assert service.chat(tools=BOTH, tool_choice=choice).status_code == 200
        sent = [arguments[0] for verb, arguments in service.worker.sent if verb == "submit"][-1]
        assert ("tool_call" in sent.sampling.grammar) is grammar
    response = service.chat(tools=[tool(parameters={"type": "objekt"})], tool_choice="required")
    assert (response.status_code, error_of(response)["param"]) == (400, "tools")
