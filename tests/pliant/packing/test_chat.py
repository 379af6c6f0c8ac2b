"""Conversations and tools as texts by the model's own template, a program that is not trusted, and calls of tools."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import ArtifactError, InputError
from pliant.packing import chat as chat_program
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
    special_tokens,
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


HELLO = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]


def rendered(source: str, messages=HELLO, **special: str) -> str:
    return ChatTemplate(source, special).render(messages)


def test_without_a_template_messages_are_joined_by_newlines():
    assert rendered("") == "hello\nyes"
    assert not ChatTemplate("", {}).given and ChatTemplate("x", {}).given


def test_a_template_reads_roles_contents_and_special_tokens_and_is_asked_for_the_answers_beginning():
    source = (
        "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message['content'] }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    assert rendered(source, bos_token="<s>", eos_token="</s>") == "<s>user: hello</s>assistant: yes</s>assistant:"


def test_a_conversation_that_the_template_rejects_is_refused_with_its_reason():
    with pytest.raises(InputError, match=r"messages is refused by the model's template \(no system message\)"):
        rendered("{{ raise_exception('no system message') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages[0].content.x.y }}",
        "{{ messages.append(1) }}",
        "{{ [1] | tojson(colour=2) }}",
        "{% for message in messages if message.role == 'assistant' %}{{ 1 / 0 }}{% endfor %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ namespace(__init__=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ dict.update(messages[0], role='x') }}",
    ],
)
def test_what_a_template_does_wrong_on_plain_conversations_is_not_the_clients(source):
    with pytest.raises(ArtifactError, match="the model's chat template fails on a plain conversation"):
        rendered(source)


@pytest.mark.parametrize(
    ("source", "message", "variables"),
    [
        ("{{ messages[0].content + ('' if messages[0].name is undefined else 1) }}", {"name": "ann"}, None),
        ("{{ {'user': 'U', 'assistant': 'A'}[messages[0].role] + messages[0].content }}", {"role": "developer"}, None),
        ("{{ messages[0].content * (count or 1) }}", {}, {"count": "a"}),
        ("{{ messages[0].content * (count or 1) }}", {}, {"count": 1 << 40}),
        ("{{ 2 ** (count or 1) }}", {}, {"count": 1 << 40}),
        ("{{ messages[0].content }}", {"content": "\ud800"}, None),
    ],
)
def test_what_a_template_makes_of_other_conversations_is_the_clients(source, message, variables):
    with pytest.raises(InputError, match="messages is "):
        ChatTemplate(source, {}).render([{**HELLO[0], **message}], variables)


FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CALLS_ITSELF = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}"
LONG = "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"
FILTERED = "{{ ([range(99999)] * 99999) | map('sum') | sum }}"


DOUBLED = "{% set ns = namespace(a='x') %}{% for n in range(99) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}"
BLOCKS = "{% set a = 'xx' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 99
SUMS = "{% set a = [1] %}" + "{% set a = a + a %}" * 99


@pytest.mark.parametrize("source", [FOREVER, CALLS_ITSELF, LONG, FILTERED, DOUBLED, BLOCKS, SUMS])
def test_a_template_that_never_ends_is_ended(source, monkeypatch):
    monkeypatch.setattr(chat_program, "SECONDS", 0.1)
    began = time.thread_time()
    with pytest.raises(ArtifactError, match=r"takes more than 0\.1 s of a processor|a text of more than"):
        rendered(source)
    assert time.thread_time() - began < 2


def test_a_conversation_on_which_alone_a_template_does_not_end_is_the_clients(monkeypatch):
    monkeypatch.setattr(chat_program, "SECONDS", 0.1)
    with pytest.raises(InputError, match=r"takes more than 0\.1 s of a processor"):
        rendered(
            "{% if messages[0].content == 'loop' %}" + FOREVER + "{% endif %}", [{"role": "user", "content": "loop"}]
        )


def test_a_template_that_cannot_be_parsed_is_no_template():
    with pytest.raises(ArtifactError, match="the chat template cannot be read: "):
        ChatTemplate("{% for %}", {})


def test_special_tokens_are_looked_up_by_the_ids_of_the_configuration():
    tokenizer = SimpleNamespace(id_to_token=lambda number: {0: "<s>", 1: "</s>"}.get(number))
    config = {"bos_token_id": 0, "eos_token_id": [1, 0], "pad_token_id": 99}
    assert special_tokens(config, tokenizer) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "",
        "pad_token": "",
    }
    assert special_tokens({"eos_token_id": []}, tokenizer)["eos_token"] == ""
