"""Conversations as texts by the model's own template, which is a program that is not trusted."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from pliant.errors import ArtifactError, InputError
from pliant.packing import chat as chat_program
from pliant.packing.chat import ChatTemplate, special_tokens

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
