"""The packing service's routes over a fake engine: OpenAI's answers and streams."""

from __future__ import annotations

import asyncio
import json

import httpx2
import openai
import pytest

from pliant.serving.client import Client
from pliant.serving.packing import api, schemas
from pliant.serving.packing.reply import Reply
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.fakes import SECONDS, TALE, new_tokenizer
from tests.fixtures.packing.in_process import QUIET, error_of, events, generator, publish, serving
from tests.fixtures.registry import FolderRegistry

TOKENS = len(new_tokenizer().encode(TALE).ids) + 1  # with the one that ends it


def test_a_text_is_continued_and_says_how_it_came_about(service):
    response = service.complete("Tell me")
    told = response.json()
    (choice,) = told["choices"]
    assert (told["object"], told["model"], choice["finish_reason"]) == ("text_completion", "tales", "stop")
    assert choice["text"] == TALE
    prompt = len(new_tokenizer().encode("Tell me").ids)
    assert told["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": TOKENS,
        "total_tokens": prompt + TOKENS,
    }
    facts = choice["pliant"]
    assert (facts["predicted_tokens"], facts["actual_tokens"], facts["prediction"]) == (10, TOKENS, "predicted")
    assert (facts["queue_seconds"], facts["preemptions"], facts["recomputed_tokens"]) == (0.25, 1, 3)
    headers = {name: text for name, text in response.headers.items() if name.startswith("x-pliant")}
    seconds = [float(headers.pop(f"x-pliant-{name}-seconds")) for name in ("ttft", "tpot")]
    assert 0 < seconds[1] < seconds[0] < 60
    assert headers == {
        "x-pliant-predicted-tokens": "10",
        "x-pliant-actual-tokens": str(TOKENS),
        "x-pliant-queue-seconds": "0.250000",
        "x-pliant-preemptions": "1",
        "x-pliant-recomputed-tokens": "3",
    }


def test_a_chat_is_put_into_the_models_template(service):
    told = service.chat([{"type": "text", "text": "Tell "}, {"type": "text", "text": "me"}]).json()
    assert told["object"] == "chat.completion"
    assert told["choices"][0]["message"] == {"role": "assistant", "content": TALE, "refusal": None}
    ids = new_tokenizer().encode("<|user|>Tell me<|assistant|>").ids
    assert told["usage"]["prompt_tokens"] == len(ids)
    assert next(args[0].ids for verb, args in reversed(service.worker.sent) if verb == "submit") == tuple(ids)


def test_the_texts_of_a_stream_make_the_whole(service):
    response = service.complete(stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-pliant-predicted-tokens"] == "10"
    *pieces, usage, done = events(response)
    assert done == "[DONE]" and usage["choices"] == [] and usage["usage"]["completion_tokens"] == TOKENS
    assert {piece["object"] for piece in pieces} == {"text_completion"} and len({piece["id"] for piece in pieces}) == 1
    assert all(piece["usage"] is None for piece in pieces)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == TALE and len(pieces) > 5
    assert [piece["choices"][0]["finish_reason"] for piece in pieces if piece["choices"][0]["finish_reason"]] == [
        "stop"
    ]
    assert pieces[-1]["choices"][0]["pliant"]["actual_tokens"] == TOKENS


def test_prompts_and_choices_are_answered_in_their_order(service):
    prompts = ["Tell me", "What", "Why so"]
    told = service.complete(prompts, n=2, max_tokens=4, temperature=1, seed=7, echo=True).json()
    assert [choice["index"] for choice in told["choices"]] == list(range(6))
    for place, choice in enumerate(told["choices"]):
        assert choice["text"].startswith(prompts[place // 2]) and choice["finish_reason"] == "length"
    assert len({choice["text"] for choice in told["choices"]}) == 6
    lengths = sum(len(ids.ids) for ids in new_tokenizer().encode_batch(prompts))
    assert told["usage"] == {"prompt_tokens": lengths, "completion_tokens": 24, "total_tokens": lengths + 24}


def test_several_choices_share_a_stream(service):
    pieces = events(service.complete(n=2, max_tokens=6, temperature=1, seed=3, echo=True, stream=True))[:-1]
    whole = service.complete(n=2, max_tokens=6, temperature=1, seed=3, echo=True).json()
    texts = ["", ""]
    for piece in pieces:
        texts[piece["choices"][0]["index"]] += piece["choices"][0]["text"]
    assert texts == [choice["text"] for choice in whole["choices"]]


def test_openais_own_client_works_unchanged(service):
    async def asking():
        transport = httpx2.ASGITransport(service.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
            client = openai.AsyncOpenAI(base_url="http://test", api_key="none", http_client=http, max_retries=0)
            messages = [{"role": "user", "content": "Tell me"}]
            chat = await client.chat.completions.create(model="tales", messages=messages, temperature=0)
            assert chat.choices[0].message.content == TALE
            assert chat.choices[0].pliant["actual_tokens"] == TOKENS
            stream = await client.completions.create(model="tales", prompt="Tell me", temperature=0, stream=True)
            assert "".join([piece.choices[0].text async for piece in stream]) == TALE
            assert [model.id async for model in client.models.list()] == ["tales"]
            with pytest.raises(openai.NotFoundError, match="must be one of tales"):
                await client.completions.create(model="gpt", prompt="Tell me")
            with pytest.raises(openai.BadRequestError) as refused:
                await client.completions.create(model="tales", prompt="Tell me", max_tokens=0)
            assert refused.value.param == "max_tokens"

    service.wait(asking())


def test_metrics_and_status_tell_what_was_served(registry):
    with serving(registry) as service:
        for _ in range(3):
            service.complete()
        service.complete(max_tokens=3)
        assert service.sample("pliant_arrivals_total", task="tales") == 4
        assert service.sample("pliant_outcomes_total", task="tales", outcome="stop") == 3
        assert service.sample("pliant_observed_tokens_count", task="tales") == 4
        told = service.status()
        (model,) = told["models"]
        assert told["ready"] and (told["waiting"], told["pending"]) == (0, 0)
        assert model["engine"]["books"] == "balanced" and model["engine"]["pages_used"] == 0
        assert model["coverage"]["0.99"] == 1.0 and model["coverage"]["0.5"] == 0.0  # 50 and 10 were said of 30 tokens
        assert json.dumps(told)
        assert service.get("/openapi.json").status_code == 200 and service.get("/docs").status_code == 200


def test_a_full_queue_drops_for_another_tenant_the_newest_of_the_one_with_the_most(registry, monkeypatch):
    settings = QUIET.replace(max_waiting=3)
    clients = {"a": Client("flood"), "b": Client("ann")}
    monkeypatch.setattr(api, "client_of", lambda request: clients[request.headers["x-client"]])
    with serving(registry, settings) as service:
        service.worker.held = True

        def post(client: str):
            return service.posting("/completions", {"prompt": "Tell me", "temperature": 0}, x_client=client)

        async def crowd():
            flood = []
            for count in (1, 2, 3):
                flood.append(asyncio.create_task(post("a")))
                await service.until(lambda count=count: service.engine.pending == count)
            refused = await post("a")
            ann = asyncio.create_task(post("b"))
            dropped = await flood[-1]
            service.worker.held = False
            return refused, dropped, [await one for one in (*flood[:-1], ann)]

        refused, dropped, answered = service.wait(crowd())
        for response in (refused, dropped):
            assert (response.status_code, error_of(response)["code"]) == (429, "rate_limit_exceeded")
        assert [response.status_code for response in answered] == [200] * 3
        ended = {
            (tenant, outcome): service.sample("pliant_tenant_outcomes_total", tenant=tenant, outcome=outcome)
            for tenant in ("flood", "ann")
            for outcome in ("answered", "dropped_full")
        }
        assert ended == {
            ("flood", "answered"): 2,
            ("flood", "dropped_full"): 2,
            ("ann", "answered"): 1,
            ("ann", "dropped_full"): None,
        }
        assert service.sample("pliant_outcomes_total", task="tales", outcome="dropped_full") == 2
        for tenant, answers in (("flood", 2), ("ann", 1)):
            seconds = service.sample("pliant_tenant_seconds_total", tenant=tenant)
            assert seconds == pytest.approx(answers * TOKENS * SECONDS)


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


def test_answers_models_and_status_have_the_documented_fields_and_no_other(service):
    check_answer(schemas.Completion, service.complete(n=2).json())
    check_answer(schemas.ChatCompletion, service.chat().json())
    check_answer(schemas.OpenaiModels, service.get("/models").json())
    check_answer(schemas.Status, service.status())
