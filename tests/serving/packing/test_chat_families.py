"""Prompts of conversations are those of transformers, token by token, with the templates and tokens of many families."""

from __future__ import annotations

import copy
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.chat import described
from pliant.serving.packing.bodies import Conversation
from pliant.serving.packing.request import PromptInput, conversation, read_tools
from pliant.serving.packing.text import PromptReader
from pliant.training.packing import chat

FAMILIES = tomllib.loads((Path(__file__).parents[2] / "fixtures" / "packing" / "families.toml").read_text())
CONTEXT = 100_000
USER = {"role": "user", "content": " Is it raining in Århus?\n"}
SYSTEM = {"role": "system", "content": "Be brief. "}
ANSWER = {"role": "assistant", "content": "\n It is. "}
FUNCTION = {
    "name": "weather",
    "description": "Tell the “weather” <of> a place.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string", "description": "näher"}, "days": {"type": "integer"}},
        "required": ["place"],
    },
}
TOOLS = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": {**FUNCTION, "name": "time"}}]
CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Århus <&>", "days": 2, "deep": {"b": [1], "a": null}}'},
}
RESULT = {"role": "tool", "content": '{"rain": true}', "tool_call_id": "call12345"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "single": [USER],
    "system": [SYSTEM, USER],
    "developer": [{**SYSTEM, "role": "developer"}, USER],
    "many turns": [SYSTEM, *[USER, ANSWER] * 4, USER],
    "two users": [USER, USER],
    "unicode": [{"role": "user", "content": "東京 \U0001f642 naïve é <|im_end|> </s>\u2028 {{ x }} {% y %}\t\r\n"}],
    "nothing said": [{"role": "user", "content": ""}],
    "a name": [{**USER, "name": "ann"}],
    "nulls": [
        {**USER, "name": None, "tool_calls": None},
        {**ANSWER, "tool_calls": [], "reasoning_content": None},
        USER,
    ],
    "reasoning": [USER, {**ANSWER, "reasoning_content": " Hm.\n"}, USER],
    "reasoning by another name": [USER, {**ANSWER, "reasoning": "Hm."}],
    "reasoning of a call": [USER, {**CALLED, "thinking": "Hm."}, RESULT],
    "calls": [USER, CALLED, RESULT, ANSWER, USER],
    "a system message and calls": [SYSTEM, USER, {**CALLED, "content": "Let me see."}, RESULT],
    "calls without content": [USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT],
    "several calls": [USER, {**CALLED, "tool_calls": [CALL, CALL]}, RESULT, RESULT],
}
KWARGS = (
    {},
    {"enable_thinking": False, "thinking": True, "documents": [{"title": "a", "text": "b"}], "bos_token": "!"},
)


@cache
def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """Every byte and every special token is a token."""
    known = FAMILIES[family]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: id for id, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(known.get("extra", []))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **known["tokens"])
    fast.chat_template = known.get("template") or known["templates"]
    return fast


@cache
def reader_of(family: str) -> PromptReader:
    """Its configuration calls the end the beginning, as some do."""
    fast = tokenizer_of(family)
    settings, text = chat.read(fast, family), fast.backend_tokenizer.to_str()
    config = json.dumps({"vocab_size": len(fast), "bos_token_id": fast.eos_token_id, "eos_token_id": fast.eos_token_id})
    texts = config, text, settings.source
    served = Generator(family, *texts, CONTEXT, (), "", {}, {}, settings.named, settings.special)
    return PromptReader(served, CONTEXT)


def read(fields: dict[str, Any]) -> PromptInput:
    body = Conversation.read(fields)
    return conversation(body, fields, read_tools(body.tools, fields.get("tools", ()), "auto", parallel=True).tools)


def prompt(family: str, fields: dict[str, Any]) -> list[int] | None:
    try:
        return list(reader_of(family).encode(read(fields)))
    except InputError:
        return None


def expected(family: str, fields: dict[str, Any]) -> list[int] | None:
    """Return the tokens of transformers for the same messages; None where it refuses them.

    Arguments are objects, empty lists are left out, and what the template knows nothing of is described first.
    """
    tools, fast = fields.get("tools") or None, tokenizer_of(family)
    messages = [{key: value for key, value in message.items() if value != []} for message in fields["messages"]]
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls") or ():
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    source = str(fast.chat_template)
    tried = [messages]
    if tools and "tools" not in source:
        tried = [described(messages, read({**fields, "messages": [USER]}).tools, system) for system in (True, False)]
        tools = None
    elif "tools" not in source and "tool_calls" not in source:
        tried = [described(messages, ())]
    for each in tried:
        try:
            return fast.apply_chat_template(
                each, tools=tools, add_generation_prompt=True, return_dict=False, **fields["chat_template_kwargs"]
            )
        except Exception:  # a template is a program
            continue
    return None


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_those_of_transformers(family):
    chat.check(
        chat.read(tokenizer_of(family), family), tokenizer_of(family), tokenizer_of(family).backend_tokenizer, family
    )
    prompts = {
        (kind, str(tools)[:11], bool(kwargs)): {"messages": messages, "chat_template_kwargs": kwargs, **tools}
        for kind, messages in CONVERSATIONS.items()
        for tools in ({}, {"tools": []}, {"tools": TOOLS})
        for kwargs in KWARGS
    }
    got = {key: prompt(family, fields) for key, fields in prompts.items()}
    assert [key for key, fields in prompts.items() if got[key] != expected(family, fields)] == []
    nothing: dict[str, Any] = {"messages": [], "chat_template_kwargs": {}}
    assert prompt(family, nothing) is None and expected(family, nothing) is None
    assert got["single", "{}", False] and sum(ids is not None for ids in got.values()) >= len(prompts) / 4
