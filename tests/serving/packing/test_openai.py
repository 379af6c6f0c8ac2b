"""Routes of packing answer in OpenAI's shape, and give up the outputs of whoever is gone or got an error."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from starlette.requests import ClientDisconnect

from pliant.packing.scheduling.request import Prompt
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing import openai
from pliant.serving.packing.openai import DisconnectedError, Form
from pliant.serving.packing.reply import Choice, Reply, ReplyInfo
from tests.fixtures.packing.in_process import error_of, generator, publish, serving
from tests.fixtures.registry import FolderRegistry


@pytest.mark.parametrize("error", [DisconnectedError, ClientDisconnect])
def test_a_client_that_has_gone_is_no_error_of_the_service(error):
    async def gone(request, endpoint):
        raise error

    counted = []
    endpoint = SimpleNamespace(metrics=SimpleNamespace(errored=counted.append), now=0.0)
    request = SimpleNamespace(state=SimpleNamespace(), scope={}, app=None)
    response = asyncio.run(openai.guarded(gone, lambda _request: endpoint)(request))
    assert (response.status_code, response.body, counted) == (499, b"", [])


def test_only_an_output_that_may_have_killed_the_engine_must_not_be_sent_again():
    for code, header in (("engine_failed", "false"), ("late", None), ("invalid", None)):
        response = openai.error_response(ApiError(500, code, "a message"))
        assert response.headers.get("x-should-retry") == header
        assert json.loads(response.body)["error"]["code"] == ("invalid_value" if code == "invalid" else code)


def test_an_error_gives_up_all_outputs_of_the_request(service, monkeypatch):
    cancelled = []
    cancel = Reply.cancel

    def counting(reply):
        cancelled.append(len(reply.choices))
        cancel(reply)

    monkeypatch.setattr(Reply, "cancel", counting)

    async def run():
        service.worker.held = True
        asking = asyncio.create_task(service.posting("/completions", {"prompt": "a", "n": 3}))
        await service.until(lambda: service.engine.pending == 3)
        service.engine.drop(next(iter(service.engine._outputs.values())))
        response = await asking
        service.worker.held = False
        await service.until(lambda: service.engine.pending == 0)
        return response

    response = service.wait(run())
    assert (response.status_code, error_of(response)["code"], cancelled) == (429, "rate_limit_exceeded", [3])
    assert service.complete().status_code == 200 and cancelled == [3], "what has ended well is not cancelled"


def streaming(outputs, usage: bool = False) -> tuple[Reply, list]:
    """A reply whose choices are these outputs, and its events as they come."""
    forecast = SimpleNamespace(tokens=(4.0,) * 8, origin="predicted")
    reply = Reply(ReplyInfo("tales", "f", 3, 2.5, usage, False), lambda _output: None)
    reply.choices = [Choice(index, output, forecast, "", "p") for index, output in enumerate(outputs)]
    return reply, []


class Output(SimpleNamespace):
    def __init__(self, text: str = "", finish: str = "") -> None:
        times = {"first_token_at": 1.0, "last_token_at": 1.0}
        first = SimpleNamespace(prompt=Prompt(0, 0.0, 3, 9, (1.0,) * 8))
        rest = {"queued": 0.0, "preemptions": 0, "recomputed": 0, "fault": ""}
        super().__init__(finish=finish, tokens=[7], first=first, **times, **rest)
        self.text = text
        self.writer = SimpleNamespace(take=self.take)

    def take(self) -> str:
        text, self.text = self.text, ""
        return text


async def collect(reply, events) -> None:
    async for event in openai._events(Form(chat=False), reply):
        for part in event.decode().split("\n\n")[:-1]:
            content = part.removeprefix("data: ")
            if content == "[DONE]":
                events.append("done")
            elif "error" in (value := json.loads(content)):
                events.append(("error", value["error"]["code"]))
            else:
                choice = (value["choices"] or [None])[0]
                events.append((choice["index"], choice["text"], choice["finish_reason"]) if choice else value["usage"])


def test_a_stream_tells_of_each_choice_until_all_have_ended_and_then_what_they_took():
    first, second = Output("one"), Output()
    reply, events = streaming([first, second], usage=True)

    async def run():
        task = asyncio.create_task(collect(reply, events))
        await asyncio.sleep(0)
        assert events == [(0, "one", None)]
        second.text, second.finish = "two", "length"
        reply.notify(second)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert events[1:] == [(1, "two", None), (1, "", "length")]
        first.finish = "stop"
        reply.notify(first)
        await task

    asyncio.run(run())
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert events[3:] == [(0, "", "stop"), usage, "done"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (0.5, 3, 1.0, 4)),
        ({"temperature": 1.5, "top_k": None, "max_tokens": 6}, (1.5, 3, 1.0, 6)),
        ({"model": "tales", "top_p": 0.25}, (0.5, 3, 0.25, 4)),
        ({"prompt": list(range(1, 9)) * 15 + [1] * 5}, (0.5, 3, 1.0, 3)),
    ],
)
def test_the_models_generation_configuration_gives_the_defaults_of_a_request(tmp_path, fields, expected):
    registry = FolderRegistry(tmp_path)
    publish(registry, model=generator(sampling={"temperature": 0.5, "top_k": 3.0, "max_tokens": 4.0}))
    with serving(registry) as service:
        answer = service.post("/completions", {"prompt": "once", **fields})
        assert answer.status_code == 200, answer.text
        (submission,) = [arguments[0] for verb, arguments in service.worker.sent if verb == "submit"]
    drawn = submission.sampling
    assert (drawn.temperature, drawn.top_k, drawn.top_p, submission.max_tokens) == expected
