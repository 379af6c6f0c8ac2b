"""Libraries that chat with a live packing service, unmodified: OpenAI's client, huggingface_hub, inspect-ai."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from steps import Step, fetch, record, run, tool

PROMPT = "The capital of France is"
MESSAGES: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS: Any = [
    tool("weather", "The weather of a place.", place={"enum": ["Paris", "Rome"]}),
    tool("clock", "The time of a zone.", zone={"enum": ["UTC", "CET"]}),
]


class Service:
    """OpenAI's client of the service, and the name of the model that it serves first."""

    def __init__(self, url: str) -> None:
        import openai

        self.openai = openai
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
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


def chat(service: Service | Hub) -> object:
    """The pieces make the text of the answer that comes whole, and the last one has its usage."""
    answer = service.chat()
    assert answer.choices[0].message.role == "assistant" and answer.usage.completion_tokens > 0, answer
    *pieces, last = service.chat(stream=True, stream_options={"include_usage": True})
    assert pieces[0].choices[0].delta.role == "assistant", pieces[0]
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == answer.choices[0].message.content, (text, answer)
    assert last.usage.total_tokens == answer.usage.total_tokens, (last, answer)
    return text


def chat_logprobs(service: Service | Hub) -> object:
    content = service.chat(logprobs=True, top_logprobs=4).choices[0].logprobs.content
    assert content and all(len(token.top_logprobs) == 4 and token.logprob <= 0 for token in content), content
    assert all(token.top_logprobs[0].logprob >= token.top_logprobs[-1].logprob for token in content), content
    read = [bytes(token.bytes).decode(errors="replace") for token in content if getattr(token, "bytes", None)]
    assert all(read), content
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


def schema(service: Service | Hub) -> object:
    shape = record(city={"enum": ["Paris", "Rome"]}, sure={"type": "boolean"})
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": shape, "strict": True}}
    given: Any = {"response_format": form, "max_completion_tokens": 64}
    fields = json.loads(service.chat(**given).choices[0].message.content)
    assert set(fields) == {"city", "sure"} and isinstance(fields["sure"], bool), fields
    text = "".join(piece.choices[0].delta.content or "" for piece in service.chat(**given, stream=True))
    assert json.loads(text) == fields, text
    return fields


def parse(service: Service) -> object:
    """OpenAI's parse writes pydantic's schema, which has references, and reads the answer back."""
    from pydantic import BaseModel

    class Colour(BaseModel):
        """Has no text or list of free length, which a small model may never end."""

        name: Literal["red", "blue"]
        dark: bool

    class Answer(BaseModel):
        """A schema with another inside, to which it refers."""

        first: Colour
        second: Colour

    fields: Any = {"model": service.model, "messages": MESSAGES, "response_format": Answer, "temperature": 0}
    answer = service.client.chat.completions.parse(**fields, max_completion_tokens=200).choices[0].message.parsed
    assert isinstance(answer, Answer), answer
    try:
        service.client.chat.completions.parse(**fields, max_completion_tokens=3)
    except service.openai.LengthFinishReasonError:
        return f"{answer!r}; one that its limit cuts is LengthFinishReasonError"
    raise AssertionError("an answer of 3 tokens is read")


def errors(service: Service) -> object:
    """Bad input has the exception class and the field that OpenAI gives it."""
    bad, missing = service.openai.BadRequestError, service.openai.NotFoundError
    complete, chat = partial(partial, service.complete), partial(partial, service.chat)
    unknown = partial(service.client.completions.create, model="no-such-model", prompt="a")
    king = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "king"}}}
    cases: dict[str, tuple[Callable[[], Any], type[Exception], str | None]] = {
        "another model": (unknown, missing, "model"),
        "temperature": (chat(temperature=9), bad, "temperature"),
        "max_tokens": (complete(max_tokens=10**9), bad, None),
        "messages": (chat([]), bad, "messages"),
        "role": (chat([{"role": "king", "content": "a"}]), bad, None),
        "top_logprobs": (chat(logprobs=True, top_logprobs=999), bad, "top_logprobs"),
        "tools": (chat(tools=[{"type": "function"}]), bad, None),
        "schema": (chat(response_format=king), bad, None),
        "n": (complete(n=0), bad, "n"),
        "stream": (complete(extra_body={"stream": "perhaps"}), bad, "stream"),
    }
    for what, (ask, kind, param) in cases.items():
        try:
            ask()
        except service.openai.APIStatusError as error:
            assert type(error) is kind, f"{what}: {error!r}"
            assert error.type and error.code and (param is None or error.param == param), f"{what}: {error.body}"
        else:
            raise AssertionError(f"{what} is no error")
    return f"{len(cases)} kinds of bad input"


OPENAI: Mapping[str, Callable[[Service], object]] = {
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


class Hub:
    """huggingface_hub's InferenceClient, which chats with OpenAI's fields under other names."""

    def __init__(self, url: str) -> None:
        from huggingface_hub import InferenceClient

        self._client = InferenceClient(base_url=f"{url}/v1", api_key="none", timeout=300)
        self._model = fetch(f"{url}/v1/models")["data"][0]["id"]

    def chat(self, messages: Any = MESSAGES, max_completion_tokens: int = 16, **fields: Any) -> Any:
        """Chat by name: without one the client sends "dummy", which is no model of the service."""
        fields = {"messages": messages, "max_tokens": max_completion_tokens, "temperature": 0, **fields}
        return self._client.chat_completion(**{"model": self._model, **fields})

    def errors(self) -> object:
        from huggingface_hub.errors import HfHubHTTPError

        for name, value, status in (("temperature", 9, 400), ("model", "no-such-model", 404)):
            try:
                self.chat(**{name: value})
            except HfHubHTTPError as error:
                assert error.response.status_code == status and name in str(error), error
            else:
                raise AssertionError(f"{name} {value} is no error")
        return "a temperature of 9, another model"


def hub(given: argparse.Namespace) -> dict[str, Step]:
    client = Hub(given.url)
    required = {"tools": TOOLS, "tool_choice": "required", "max_completion_tokens": 128}
    return {
        "chat_completion, whole and streamed with usage": partial(chat, client),
        "log-probabilities": partial(chat_logprobs, client),
        "tools, required": lambda: check_calls(client.chat(**required).choices[0]),
        "response_format json_schema, whole and streamed": partial(schema, client),
        "errors": client.errors,
    }


QUESTIONS = ("What is the capital of France?", "How is the weather in Rome?", "Name a colour.")


def inspect(given: argparse.Namespace) -> dict[str, Step]:
    """inspect-ai with its provider for interfaces like OpenAI's. Each step is an evaluation of a task of all questions."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import GenerateConfig, ResponseSchema
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import ToolFunction
    from inspect_ai.tool import tool as make_tool
    from inspect_ai.util import json_schema
    from pydantic import BaseModel

    class City(BaseModel):
        """What an output is to be read as."""

        name: Literal["Paris", "Rome"]
        large: bool

    os.environ |= {"PLIANT_BASE_URL": f"{given.url}/v1", "PLIANT_API_KEY": "none"}

    @make_tool
    def weather() -> Any:
        async def execute(place: Literal["Paris", "Rome"]) -> str:
            """Look up the weather.

            Args:
                place: Name of the place.
            """
            return f"rain in {place}"

        return execute

    def run_task(check: Callable[[Any], bool], solver: Any, **config: Any) -> str:
        """Raises `AssertionError` unless all questions are answered, and pass the check."""

        @scorer(metrics=[accuracy()])
        def passes() -> Any:
            async def score(state: Any, target: Any) -> Any:
                return Score(value=check(state), answer=state.output.completion)

            return score

        samples = [Sample(input=question, target="") for question in QUESTIONS]
        task = Task(dataset=samples, solver=solver, scorer=passes(), config=GenerateConfig(**config))
        model = f"openai-api/pliant/{given.model}"
        (log,) = evaluate(task, model=model, log_dir=given.folder, display="none", fail_on_error=True)
        assert log.status == "success", log.error and log.error.message
        value = log.results.scores[0].metrics["accuracy"].value
        shown = [sample.output.completion or str(sample.messages[-1].text) for sample in log.samples]
        assert value == 1, shown
        return f"{len(samples)} samples, such as {shown[0][:60]!r}"

    def has_logprobs(state: Any) -> bool:
        tokens = state.output.choices[0].logprobs.content
        return bool(tokens) and all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in tokens)

    def has_called(state: Any) -> bool:
        """The call is forced, its result goes back, and the model answers."""
        results = [message.text for message in state.messages if message.role == "tool"]
        return bool(results) and all(text in ("rain in Paris", "rain in Rome") for text in results)

    def is_city(state: Any) -> bool:
        City.model_validate(json.loads(state.output.completion))
        return True

    calling = [use_tools(weather(), tool_choice=ToolFunction("weather")), generate(tool_calls="single")]
    form = ResponseSchema(name="city", json_schema=json_schema(City), strict=True)
    likely = {"logprobs": True, "top_logprobs": 2, "max_tokens": 16, "temperature": 0}
    long = {"max_tokens": 100, "temperature": 0}
    return {
        "a task with log-probabilities": lambda: run_task(has_logprobs, generate(), **likely),
        "a task with a tool": lambda: run_task(has_called, calling, **long),
        "a task with a response schema": lambda: run_task(is_city, generate(), response_schema=form, **long),
    }


def openai(given: argparse.Namespace) -> dict[str, Step]:
    service = Service(given.url)
    return {what: partial(step, service) for what, step in OPENAI.items()}


CLIENTS = {"openai": openai, "huggingface_hub": hub, "inspect-ai": inspect}

if __name__ == "__main__":
    run(lambda given: CLIENTS[given.client](given))
