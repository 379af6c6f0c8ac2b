"""OpenAI's own client, unmodified, against a live packing service.

    python qa/conformance/clients/openai_client.py http://127.0.0.1:3000

runs in an environment with `REQUIREMENTS` and nothing of Pliant. Each step prints a line of JSON: client, version, what it
did, ok and detail. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import openai
from pydantic import BaseModel
from steps import record, take_steps, tool

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {"openai": ("openai==3.57.0",)}
"""The pinned requirements of each client."""
PROMPT = "The capital of France is"
MESSAGES: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS: Any = [
    tool("weather", "The weather of a place.", place={"enum": ["Paris", "Rome"]}),
    tool("clock", "The time of a zone.", zone={"enum": ["UTC", "CET"]}),
]


class Colour(BaseModel):
    """Has no text or list of free length, which a small model may never end."""

    name: Literal["red", "blue"]
    dark: bool


class Answer(BaseModel):
    """A schema with another inside, to which it refers."""

    first: Colour
    second: Colour


class Service:
    """A client of the service, and the name of the model that it serves first."""

    def __init__(self, url: str) -> None:
        self.client = openai.OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key="none", max_retries=0, timeout=300)
        self.model = next(iter(self.client.models.list())).id

    def complete(self, prompt: Any = PROMPT, **fields: Any) -> Any:
        """Return a completion, greedy unless `fields` say otherwise."""
        fields = {"temperature": 0, "max_tokens": 8, **fields}
        return self.client.completions.create(model=self.model, prompt=prompt, **fields)

    def chat(self, messages: Any = MESSAGES, **fields: Any) -> Any:
        """Return a chat completion, greedy unless `fields` say otherwise."""
        fields = {"temperature": 0, "max_completion_tokens": 16, **fields}
        return self.client.chat.completions.create(model=self.model, messages=messages, **fields)


def models(service: Service) -> object:
    return service.client.models.retrieve(service.model).id


def completion(service: Service) -> object:
    answer = service.complete()
    usage = answer.usage
    assert answer.object == "text_completion" and answer.choices[0].finish_reason in ("length", "stop"), answer
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
    assert usage.completion_tokens == 8 or answer.choices[0].finish_reason == "stop", usage
    several = service.complete([PROMPT, "Once"])
    assert [choice.index for choice in several.choices] == [0, 1] and several.choices[0].text == answer.choices[0].text
    return answer.choices[0].text


def completion_stream(service: Service) -> object:
    """The pieces make the text of the answer that comes whole, and the last one has its usage."""
    whole = service.complete(max_tokens=24)
    *pieces, last = service.complete(max_tokens=24, stream=True, stream_options={"include_usage": True})
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert not last.choices and last.usage == whole.usage, last
    assert [piece.choices[0].finish_reason for piece in pieces][-1] == whole.choices[0].finish_reason
    return f"{len(pieces)} pieces"


def completion_logprobs(service: Service) -> object:
    choice = service.complete(logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    assert all(value <= 0 for value in logprobs.token_logprobs), logprobs
    for value, top in zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert 3 <= len(top) <= 4 and abs(max(top.values()) - value) < 1e-5, top
    return f"{len(logprobs.tokens)} tokens, the greedy one the likeliest"


def echo(service: Service) -> object:
    """The log-probabilities of a text do not depend on whether the model wrote it or read it."""
    drawn = service.complete(logprobs=1, stop=None).choices[0]
    read = service.complete(echo=True, max_tokens=0, logprobs=1).choices[0]
    assert read.text == PROMPT and read.logprobs.token_logprobs[0] is None, read
    both = service.complete(echo=True, logprobs=1).choices[0]
    assert both.text == PROMPT + drawn.text
    count = len(read.logprobs.tokens)
    apart = [
        abs(a - b) for a, b in zip(both.logprobs.token_logprobs[count:], drawn.logprobs.token_logprobs, strict=True)
    ]
    assert max(apart) < 1e-3, apart
    return f"{count} tokens of a prompt"


def several(service: Service) -> object:
    drawn = {"temperature": 1, "seed": 7, "max_tokens": 12}
    answer = service.complete(n=3, **drawn)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    again = service.complete(n=3, **drawn)
    assert [c.text for c in again.choices] == [c.text for c in answer.choices], "the same seed gives the same texts"
    five = service.complete(n=5, logprobs=0, **drawn)
    means = {c.text: sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in five.choices}
    best = service.complete(n=2, best_of=5, **drawn)
    assert [c.text for c in best.choices] == sorted(means, key=means.__getitem__, reverse=True)[:2], (best, means)
    assert best.usage.completion_tokens == five.usage.completion_tokens, "usage counts those that were left out, too"
    texts = [choice.message.content for choice in service.chat(n=2, temperature=1, seed=7).choices]
    assert len(texts) == 2 and texts[0] != texts[1], texts
    return "n=3, the best two of 5, n=2 of a chat"


def chat(service: Service) -> object:
    answer = service.chat()
    assert answer.object == "chat.completion" and answer.choices[0].message.role == "assistant", answer
    *pieces, last = service.chat(stream=True, stream_options={"include_usage": True})
    assert pieces[0].choices[0].delta.role == "assistant", pieces[0]
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == answer.choices[0].message.content and last.usage == answer.usage, (text, answer)
    return text


def chat_logprobs(service: Service) -> object:
    content = service.chat(logprobs=True, top_logprobs=4).choices[0].logprobs.content
    assert all(len(token.top_logprobs) == 4 and token.logprob <= 0 for token in content), content
    assert all(token.top_logprobs[0].logprob >= token.top_logprobs[-1].logprob for token in content), content
    assert all(bytes(token.bytes).decode(errors="replace") for token in content if token.bytes), content
    return f"{len(content)} tokens"


def tools_auto(service: Service) -> object:
    """A model may call or not; in both cases the answer and its stream agree."""
    answer = service.chat(tools=TOOLS, max_completion_tokens=48).choices[0]
    calls = answer.message.tool_calls or []
    assert (answer.finish_reason == "tool_calls") == bool(calls), answer
    for call in calls:
        json.loads(call.function.arguments)
    return f"{len(calls)} calls, finish_reason {answer.finish_reason}"


def tools_required(service: Service) -> object:
    answer = service.chat(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_completion_tokens=128)
    calls = check_calls(answer.choices[0])
    assert calls[0][0] in ("weather", "clock"), calls
    messages = [*MESSAGES, answer.choices[0].message.model_dump(exclude_none=True)]
    for call in answer.choices[0].message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
    after = service.chat(messages, tools=TOOLS, tool_choice="none")
    assert after.choices[0].message.content is not None
    return calls


def tools_named(service: Service) -> object:
    named = {"type": "function", "function": {"name": "clock"}}
    fields = {"tools": TOOLS, "tool_choice": named, "max_completion_tokens": 128}
    calls = check_calls(service.chat(**fields).choices[0])
    assert [name for name, _ in calls] == ["clock"], calls
    parts: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    for piece in service.chat(**fields, stream=True):
        for call in piece.choices[0].delta.tool_calls or []:
            parts.setdefault(call.index, []).append(call.function.arguments or "")
            if call.function.name:
                names[call.index] = call.function.name
    streamed = [(names[index], json.loads("".join(texts))) for index, texts in parts.items()]
    assert streamed == calls, (streamed, calls)
    return calls


def check_calls(choice: Any) -> list[tuple[str, Any]]:
    """Return the calls of a choice, each of which keeps to the schema of its tool."""
    assert choice.message.tool_calls, choice
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
    for name, arguments in calls:
        schema = next(tool["function"]["parameters"] for tool in TOOLS if tool["function"]["name"] == name)
        assert set(arguments) == set(schema["required"]), arguments
        assert all(value in schema["properties"][key]["enum"] for key, value in arguments.items()), arguments
    return calls


def schema(service: Service) -> object:
    shape = record(city={"enum": ["Paris", "Rome"]}, sure={"type": "boolean"})
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": shape, "strict": True}}
    fields = json.loads(service.chat(response_format=form, max_completion_tokens=64).choices[0].message.content)
    assert set(fields) == {"city", "sure"} and isinstance(fields["sure"], bool), fields
    text = "".join(
        piece.choices[0].delta.content or ""
        for piece in service.chat(response_format=form, max_completion_tokens=64, stream=True)
    )
    assert json.loads(text) == fields, text
    return fields


def parse(service: Service) -> object:
    """OpenAI's parse writes pydantic's schema, which has references, and reads the answer back."""
    fields: Any = {"model": service.model, "messages": MESSAGES, "response_format": Answer, "temperature": 0}
    answer = service.client.chat.completions.parse(**fields, max_completion_tokens=200).choices[0].message.parsed
    assert isinstance(answer, Answer), answer
    try:
        service.client.chat.completions.parse(**fields, max_completion_tokens=3)
    except openai.LengthFinishReasonError:
        return f"{answer!r}; one that its limit cuts is LengthFinishReasonError"
    raise AssertionError("an answer of 3 tokens is read")


def errors(service: Service) -> object:
    """Bad input has the exception class and the field that OpenAI gives it."""
    cases: dict[str, tuple[Callable[[], Any], type[openai.APIStatusError], str | None]] = {
        "another model": (
            lambda: service.client.completions.create(model="no-such-model", prompt="a"),
            openai.NotFoundError,
            "model",
        ),
        "temperature": (lambda: service.chat(temperature=9), openai.BadRequestError, "temperature"),
        "max_tokens": (lambda: service.complete(max_tokens=10**9), openai.BadRequestError, None),
        "messages": (lambda: service.chat([]), openai.BadRequestError, "messages"),
        "role": (lambda: service.chat([{"role": "king", "content": "a"}]), openai.BadRequestError, None),
        "top_logprobs": (lambda: service.chat(logprobs=True, top_logprobs=999), openai.BadRequestError, "top_logprobs"),
        "tools": (lambda: service.chat(tools=[{"type": "function"}]), openai.BadRequestError, None),
        "schema": (
            lambda: service.chat(
                response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "king"}}}
            ),
            openai.BadRequestError,
            None,
        ),
        "n": (lambda: service.complete(n=0), openai.BadRequestError, "n"),
        "stream": (lambda: service.complete(extra_body={"stream": "perhaps"}), openai.BadRequestError, "stream"),
    }
    for what, (call, kind, param) in cases.items():
        try:
            call()
        except openai.APIStatusError as error:
            assert type(error) is kind, f"{what}: {error!r}"
            assert error.type and error.code and (param is None or error.param == param), f"{what}: {error.body}"
        else:
            raise AssertionError(f"{what} is no error")
    return f"{len(cases)} kinds of bad input"


STEPS: Mapping[str, Callable[[Service], object]] = {
    "models": models,
    "completions of one prompt and of two": completion,
    "a streamed completion with usage": completion_stream,
    "log-probabilities of a completion": completion_logprobs,
    "echo": echo,
    "n and best_of": several,
    "a chat, whole and streamed with usage": chat,
    "log-probabilities of a chat": chat_logprobs,
    "tools, auto": tools_auto,
    "tools, required, and the result sent back": tools_required,
    "tools, named, whole and streamed": tools_named,
    "response_format json_schema, whole and streamed": schema,
    "chat.completions.parse with pydantic": parse,
    "errors of bad input": errors,
}


def main(url: str) -> int:
    """Take all steps, and return the exit status."""
    service = Service(url)
    return take_steps("openai", {what: partial(step, service) for what, step in STEPS.items()})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
