"""Calls of tools are read out of a text however it is cut into parts, and what is no call stays text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.chat import (
    HERMES,
    LLAMA,
    MISTRAL,
    CallParser,
    ChatTemplate,
    Tool,
    ToolCall,
    ToolFormat,
    calls_grammar,
)
from pliant.packing.engine.grammar import Grammars
from tests.fixtures.packing.fakes import new_tokenizer

ADD = Tool("add", "Add numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
STOP = Tool("stop", "", {})
TOOLS = (ADD, STOP)
CALL = {"name": "add", "arguments": {"a": 3}}
FORMATS = {"hermes": HERMES, "mistral": MISTRAL, "llama": LLAMA}
TOKENIZER = new_tokenizer()


def written(form: ToolFormat, *calls: dict, before: str = "") -> str:
    """Write calls as a model would."""
    renamed = [{"name": call["name"], form.key: call["arguments"]} for call in calls]
    if form.end:
        return before + "\n".join(f"{form.begin}\n{json.dumps(call)}\n{form.end}" for call in renamed)
    return json.dumps(renamed[0]) if form is LLAMA else f"{form.begin} {json.dumps(renamed)}"


def parsed(form: ToolFormat, text: str, parts: list[int], parallel: bool = True) -> list[str | ToolCall]:
    """Read a text that is cut behind so many characters each; texts that follow each other are joined."""
    parser, read, start = CallParser(form, ["add", "stop"], parallel), list[str | ToolCall](), 0
    for size in [*parts, len(text)]:
        read += parser.put(text[start : start + size])
        start += size
    joined: list[str | ToolCall] = []
    for part in [*read, *parser.end()]:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


cuts = st.lists(st.integers(1, 9), max_size=60)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@given(cuts)
def test_calls_are_read_in_any_parts(form: ToolFormat, parts: list[int]) -> None:
    calls = [CALL] if form is LLAMA else [CALL, {"name": "stop", "arguments": {}}]
    expected = [ToolCall(call["name"], json.dumps(call["arguments"])) for call in calls]
    assert parsed(form, written(form, *calls), parts) == expected


@given(cuts)
def test_a_text_before_tagged_calls_stays(parts: list[int]) -> None:
    text = written(HERMES, CALL, before="I add <them>.\n")
    assert parsed(HERMES, text, parts) == ["I add <them>.\n", ToolCall("add", '{"a": 3}')]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@given(text=st.text(max_size=40), parts=cuts)
def test_any_other_text_stays_as_it_is(form: ToolFormat, text: str, parts: list[int]) -> None:
    assert "".join(str(part) for part in parsed(form, text, parts)) == text


BROKEN = {
    "no JSON": '<tool_call>\n{"name": "add"\n</tool_call>',
    "another tool": '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
    "arguments that are no object": '<tool_call>{"name": "add", "arguments": 7}</tool_call>',
    "no end": '<tool_call>\n{"name": "add", "arguments": {"a": 3}}',
    "half a mark": "a < b <tool",
    "nested without end": "<tool_call>" + "[" * 20_000 + "</tool_call>",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_looks_like_a_call_and_is_none_stays_text(text: str) -> None:
    assert parsed(HERMES, text, [5, 7]) == [text]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_the_grammar_of_calls_allows_what_the_parser_reads_and_nothing_else(form: ToolFormat) -> None:
    grammars = Grammars(TOKENIZER.to_str(), TOKENIZER.get_vocab_size(), (0,))

    def allows(text: str, parallel: bool = True, tools: tuple[Tool, ...] = TOOLS) -> bool:
        grammar = calls_grammar(form, tools, parallel)
        grammars.check(grammar, "tools")
        return grammars._compiled(grammar).deep_copy().consume_tokens([*TOKENIZER.encode(text).ids, 0])

    def compact(*calls: dict) -> str:
        return written(form, *calls).replace("[TOOL_CALLS] ", "[TOOL_CALLS]")

    assert allows(compact(CALL)) and allows(compact(CALL), tools=(ADD,))
    assert allows(compact({"name": "stop", "arguments": {}}))
    assert not allows(compact({"name": "add", "arguments": {}})), "an argument is missing"
    assert not allows(compact(CALL), tools=(STOP,)) and not allows("I add them.")
    if form is not LLAMA:
        assert allows(compact(CALL, CALL)) and not allows(compact(CALL, CALL), parallel=False)


QWEN = (
    "{% if tools %}{% for tool in tools %}<tools>{{ tool | tojson }}</tools>{% endfor %}<tool_call>{% endif %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    "{% for call in message.tool_calls or [] %}[{{ call.function.name }}|{{ call.function.arguments | tojson }}]"
    "{% endfor %};{% endfor %}"
)
ANY = "{% for message in messages %}{{ message.role }}:{{ message.content }};{% endfor %}"
STRICT = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + ANY
CALLED = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": CALL}]}
CONVERSATION = [
    {"role": "user", "content": "1 + 2?"},
    CALLED,
    {"role": "tool", "content": "3", "tool_call_id": "1"},
]


def test_a_template_that_takes_tools_writes_them_itself() -> None:
    template = ChatTemplate(QWEN, {})
    text = template.render(CONVERSATION, None, TOOLS)
    assert template.tool_format is HERMES
    assert text.count("<tools>") == 2 and '"name": "add"' in text
    assert text.endswith('<tool_call>user:1 + 2?;assistant:[add|{"a": 3}];tool:3;')
    assert template.render(CONVERSATION).startswith("user:1 + 2?;"), "no tools, no word of them"


@pytest.mark.parametrize("source", [ANY, STRICT, ""])
def test_any_other_template_gets_tools_calls_and_results_as_texts(source: str) -> None:
    template = ChatTemplate(source, {})
    text = template.render(CONVERSATION, None, TOOLS)
    assert template.tool_format is HERMES
    assert '"name": "add"' in text and text.count("<tools>") == 1
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>' in text
    assert "<tool_response>\n3\n</tool_response>" in text and "tool:3" not in text
    assert ("system:" in text) is (source == ANY)
