"""Tools, choices and calls of a request are read within their limits, and answers have calls in OpenAI's shape."""

from __future__ import annotations

import json

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory
from pliant.packing.tools import Tool
from serving.http.api_errors import ApiError
from serving.packing import schemas
from serving.packing.tool_fields import MAX_TOOLS, NO_TOOLS, ToolRequest, read_calls, read_tools
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.fakes import TALE, new_tokenizer
from tests.fixtures.packing.in_process import error_of, events, generator, publish, serving
from tests.fixtures.registry import FolderRegistry

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}


def tool(name="add", **changes) -> dict:
    return {"type": "function", "function": {"name": name, "description": "Add.", "parameters": PARAMETERS, **changes}}


ADD, STOP = Tool("add", "Add.", PARAMETERS), Tool("stop", "", {})
BOTH = [tool(), {"function": {"name": "stop"}}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, NO_TOOLS),
        ({"tools": []}, NO_TOOLS),
        ({"tools": BOTH}, ToolRequest((ADD, STOP), (ADD, STOP), False, True)),
        ({"tools": BOTH, "tool_choice": "none"}, NO_TOOLS),
        ({"tools": BOTH, "tool_choice": "required"}, ToolRequest((ADD, STOP), (ADD, STOP), True, True)),
        ({"tools": BOTH, "parallel_tool_calls": False}, ToolRequest((ADD, STOP), (ADD, STOP), False, False)),
        (
            {"tools": BOTH, "tool_choice": {"type": "function", "function": {"name": "stop"}}},
            ToolRequest((ADD, STOP), (STOP,), True, False),
        ),
    ],
)
def test_tools_and_the_choice_among_them_are_read(fields, expected):
    assert read_tools(fields) == expected


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tools": "add"}, "tools is 'add', but must be a list of tools"),
        ({"tools": [tool()] * (MAX_TOOLS + 1)}, "tools is a list of 129, but must be a list of at most 128"),
        ({"tools": [tool(), tool()]}, "tools is two functions of one name"),
        ({"tools": ["add"]}, r"tools\[0\] is 'add', but must be an object with type and function"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\].function is None, but must be an object with a name"),
        ({"tools": [tool(name="a b")]}, r"tools\[0\].function.name is 'a b', but must be up to 64 letters"),
        ({"tools": [tool(name="a" * 65)]}, r"tools\[0\].function.name"),
        ({"tools": [tool(description=7)]}, r"tools\[0\].function.description is 7, but must be a text"),
        ({"tools": [tool(parameters="a")]}, r"tools\[0\].function.parameters is 'a', but must be a JSON schema"),
        ({"tools": [tool(description="x" * 262_144)]}, "tools is .* characters, but must be at most 262144 characters"),
        ({"tools": BOTH, "tool_choice": "some"}, "tool_choice is 'some', but must be one of none, auto, required"),
        ({"tool_choice": "required"}, "tool_choice is required, but must be left out without tools"),
        ({"tools": BOTH, "tool_choice": {"function": {"name": "add"}}}, "an object that names one of the tools"),
        (
            {"tools": BOTH, "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "an object that names one of the tools",
        ),
        ({"tools": BOTH, "parallel_tool_calls": 1}, "parallel_tool_calls is 1, but must be true or false"),
    ],
)
def test_what_cannot_be_read_is_named(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        read_tools(fields)


def test_a_tool_that_is_no_function_is_refused():
    with pytest.raises(ApiError, match=r"tools\[0\]\.type is not supported unless it is function"):
        read_tools({"tools": [{"type": "web_search"}]})


def test_tools_that_are_nested_too_deep_are_refused():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"items": deep}
    with pytest.raises(InputError, match="tools is nested too deep"):
        read_tools({"tools": [tool(parameters=deep)]})


def test_arguments_of_calls_become_objects_as_templates_expect():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}}
    (read,) = read_calls("tool_calls", [call])
    assert read == {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 3}}}
    assert read_calls("tool_calls", [{"function": {"name": "stop", "arguments": ""}}])[0]["function"]["arguments"] == {}
    for bad in ("{", "7", '"a"', "[" * 50_000):
        with pytest.raises(InputError, match=r"tool_calls\[0\].function.arguments is .* a text with a JSON object"):
            read_calls("tool_calls", [{"function": {"name": "add", "arguments": bad}}])


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


def test_a_call_that_is_cut_by_the_limit_is_text(service, saying):
    saying(CALL)
    (choice,) = service.chat(tools=BOTH, max_tokens=8).json()["choices"]
    assert choice["finish_reason"] == "length" and "tool_calls" not in choice["message"]
    assert CALL.startswith(choice["message"]["content"]) and choice["message"]["content"]


def test_nothing_is_a_call_where_no_tool_may_be_called(service, saying):
    saying(CALL)
    for fields in ({}, {"tools": BOTH, "tool_choice": "none"}):
        (choice,) = service.chat(**fields).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")


def test_what_must_be_called_is_a_grammar_for_the_engine(service):
    named = {"type": "function", "function": {"name": "add"}}
    for choice, grammar in (("required", True), (named, True), ("auto", False)):
        assert service.chat(tools=BOTH, tool_choice=choice).status_code == 200
        sent = [arguments[0] for verb, arguments in service.worker.sent if verb == "submit"][-1]
        assert ("tool_call" in sent.sampling.grammar) is grammar
    response = service.chat(tools=[tool(parameters={"type": "objekt"})], tool_choice="required")
    assert (response.status_code, error_of(response)["param"]) == (400, "tools")


def test_a_conversation_with_calls_and_results_goes_on(service):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}}
    messages = [
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    body = {"model": "tales", "messages": messages, "tools": BOTH, "max_tokens": 4, "temperature": 0}
    response = service.post("/chat/completions", body)
    plain = service.post("/chat/completions", {**body, "tools": []})
    tokens = [answer.json()["usage"]["prompt_tokens"] for answer in (plain, response)]
    assert tokens[0] < tokens[1], "tools are part of the prompt"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": "a", "tool_calls": [{"function": {"name": "add"}}]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": "add"}, "messages[0].tool_calls"),
        ({"role": "assistant"}, "messages[0].content"),
        ({"role": "tool", "content": "3", "tool_call_id": 7}, "messages[0].tool_call_id"),
    ],
)
def test_a_message_with_calls_that_cannot_be_read_is_refused_by_name(service, message, param):
    response = service.post("/chat/completions", {"model": "tales", "messages": [message]})
    assert (response.status_code, error_of(response)["param"]) == (400, param)
