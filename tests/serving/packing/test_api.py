"""The packing service's routes over a fake engine: OpenAI's answers, streams and log-probabilities, and vLLM's tokens."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx2
import openai
import pytest

from pliant.packing import chat as chat_program
from pliant.packing.scheduling.forecast import Forecast
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.serving.client import Client
from pliant.serving.packing import api, schemas
from pliant.serving.packing.reply import Choice, Reply
from pliant.serving.packing.text import TokenTexts
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.fakes import SECONDS, TALE, logprobs_of, new_tokenizer
from tests.fixtures.packing.in_process import CONTEXT, QUIET, error_of, events, generator, publish, serving
from tests.fixtures.registry import FolderRegistry
from tests.serving.packing.test_bodies import tool

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
def test_the_models_generation_configuration_gives_the_defaults_of_a_request(registry, fields, expected):
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


TOKENIZER = new_tokenizer()
TEXTS = TokenTexts(TOKENIZER)
OUTPUT = [*TOKENIZER.encode(TALE).ids, 0]
PROMPT_IDS = TOKENIZER.encode("Tell me").ids


def top_of(token: int, top: int) -> dict[str, float]:
    known = logprobs_of(token, top)
    return {TEXTS.text_of(id): logprob for id, logprob in (*known.top, (token, known.logprob))}


def expected(tokens: list[int], top: int) -> dict[str, list]:
    return {
        "tokens": [TEXTS.text_of(token) for token in tokens],
        "token_logprobs": [logprobs_of(token, top).logprob for token in tokens],
        "top_logprobs": [top_of(token, top) for token in tokens],
    }


@pytest.mark.parametrize("top", [0, 3])
def test_a_completion_has_those_of_its_tokens_the_last_included(service, top):
    (choice,) = service.complete(logprobs=top).json()["choices"]
    offsets = choice["logprobs"].pop("text_offset")
    assert choice["logprobs"] == expected(OUTPUT, top)
    assert offsets[0] == 0 and offsets[-1] == len(TALE)
    for token, begin, end in zip(OUTPUT, offsets, offsets[1:], strict=False):
        whole = not TEXTS.text_of(token).startswith("bytes:")
        assert not whole or TALE[begin:end] == TEXTS.text_of(token)


def test_a_chat_has_tokens_with_bytes_and_the_likeliest_ones(service):
    response = service.chat(logprobs=True, top_logprobs=2)
    logprobs = response.json()["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    for token, entry in zip(OUTPUT, logprobs["content"], strict=True):
        known = logprobs_of(token, 2)
        assert entry == {
            "token": TEXTS.text_of(token),
            "logprob": known.logprob,
            "bytes": list(TEXTS.bytes_of(token)),
            "top_logprobs": [
                {"token": TEXTS.text_of(id), "logprob": logprob, "bytes": list(TEXTS.bytes_of(id))}
                for id, logprob in known.top
            ],
        }
    check_answer(schemas.ChatCompletion, response.json())


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_has_every_token_once(service, echo):
    whole = service.complete(logprobs=2, echo=echo).json()["choices"][0]
    *chunks, _ = events(service.complete(logprobs=2, echo=echo, stream=True))
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        streamed = [value for part in parts if part["logprobs"] for value in part["logprobs"][name]]
        assert streamed == values


def test_log_probabilities_of_prompts_are_limited_by_tokens_and_alternatives(service, monkeypatch):
    monkeypatch.setattr("pliant.serving.packing.endpoint.MAX_PROMPT_LOGPROBS", 6 * len(PROMPT_IDS))
    assert service.complete(logprobs=2, echo=True, n=2).status_code == 200
    refused = service.complete(logprobs=3, echo=True, n=2)
    assert refused.status_code == 400 and "tokens x (logprobs + 1) x n" in refused.text
    assert service.complete(logprobs=20).status_code == 200, "without its prompt"


CHAT = [{"role": "user", "content": "Tell me"}]


def test_a_text_becomes_the_tokens_that_the_model_would_read(service):
    response = service.post_root("/tokenize", {"model": "tales", "prompt": "Tell me 🙂"})
    ids = TOKENIZER.encode("Tell me 🙂").ids
    assert response.json() == {"count": len(ids), "max_model_len": CONTEXT, "tokens": ids, "token_strs": None}
    check_answer(schemas.Tokens, response.json())
    strings = service.post_root("/tokenize", {"prompt": "Tell", "return_token_strs": True}).json()["token_strs"]
    assert "".join(strings) == "Tell"
    assert service.post_root("/tokenize", {"prompt": ""}).json()["count"] == 0


def test_a_conversation_is_written_by_its_template_first(service):
    tokens = service.post_root("/tokenize", {"messages": CHAT}).json()["tokens"]
    assert TOKENIZER.decode(tokens, skip_special_tokens=False) == "<|user|>Tell me<|assistant|>"
    read = service.post("/chat/completions", {"messages": CHAT, "max_tokens": 1}).json()
    assert read["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", 503),
        ("{{ [1] | tojson(colour=2) }}", 503),
        ("{{ raise_exception('not today') }}", 400),
        ("{{ 1 / (messages[0].content | length - 7) }}", 400),
    ],
)
def test_a_client_is_blamed_for_nothing_but_its_conversation(registry, monkeypatch, source, status):
    monkeypatch.setattr(chat_program, "SECONDS", 0.2)
    publish(registry, model=generator(chat_template=source))
    with serving(registry) as service:
        answers = [
            service.post("/chat/completions", {"messages": CHAT, "max_tokens": 1}),
            service.post_root("/tokenize", {"messages": CHAT}),
        ]
    assert [response.status_code for response in answers] == [status] * 2
    assert {error_of(response)["code"] for response in answers} == {
        "artifact_unusable" if status == 503 else "invalid_value"
    }


def test_tokens_become_their_text_again_special_ones_included(service):
    ids = [1, *TOKENIZER.encode("Tell me 🙂").ids]
    response = service.post_root("/detokenize", {"tokens": ids})
    assert response.json() == {"prompt": "<|user|>Tell me 🙂"}
    check_answer(schemas.Detokenized, response.json())
    assert service.post_root("/detokenize", {"tokens": []}).json() == {"prompt": ""}


def reply(*finishes: str, **targets: float) -> Reply:
    """Return choices of three tokens in a second, the first half a second after it came."""
    request = SimpleNamespace(chat=False, deadline=2.5)
    made = Reply(request, "tales", "f", 11, lambda _output: None)
    prompt = Prompt(0, 10.0, 3, 9, (1.0,) * 8, **targets)
    outputs = [
        SimpleNamespace(
            tokens=[7] * 3, finish=finish, fault="", writer=SimpleNamespace(waiting=0), first_token_at=10.5,
            last_token_at=11.5, first=SimpleNamespace(prompt=prompt),
        )
        for finish in finishes
    ]  # fmt: skip
    forecast = Forecast((4.0,) * 8, 8, "model")
    made.choices = [Choice(index, output, forecast, "", "p") for index, output in enumerate(outputs)]
    return made


@pytest.mark.parametrize(
    ("finish", "sentence"),
    [
        ("late", "deadline is 2.5 seconds, but waiting and computing would take longer"),
        ("full", "the queue is full; try again later"),
        ("failed", "the engine failed"),
        ("cancelled", "the output was cancelled"),
        ("slow", "the client did not read the stream, so its output was cancelled"),
    ],
)
def test_an_error_says_what_happened(finish, sentence):
    error = reply(finish, "failed").api_error()
    assert (str(error), error.status) == (sentence, {"full": 429, "failed": 500, "slow": 408}.get(finish, 503))


@pytest.mark.parametrize(
    ("targets", "on_time"),
    [
        ({}, True),
        ({"ttft": 0.5, "tpot": 0.5, "deadline": 11.5}, True),
        ({"ttft": 0.49}, False),
        ({"tpot": 0.49}, False),
        ({"deadline": 11.4}, False),
    ],
)
def test_an_output_is_on_time_if_it_kept_all_its_targets(targets, on_time):
    (choice,) = reply("stop", **targets).choices
    assert (choice.on_time, choice.has_targets) == (on_time, bool(targets))


BOTH = [tool(parameters={"type": "object", "properties": {"a": {"type": "integer"}}}), {"function": {"name": "stop"}}]


@pytest.fixture(scope="module")
def roomy(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish(registry, memory=Memory(pages=512, page_tokens=4), model=generator(context=1024))
    with serving(registry) as service:
        yield service


@pytest.fixture
def saying(roomy):
    """Have the engine say something else than the tale."""

    def say(text):
        roomy.worker.engine.tale = new_tokenizer().encode(text).ids

    yield say
    say(TALE)


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>'


def test_calls_are_answered_in_openais_shape(roomy, saying):
    saying(f"Well. {CALL}\n{CALL}")
    response = roomy.chat(tools=BOTH, parallel_tool_calls=True)
    (choice,) = response.json()["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == ("Well. ", "tool_calls")
    first, second = message["tool_calls"]
    assert first["function"] == second["function"] == {"name": "add", "arguments": '{"a": 3}'}
    assert first["type"] == "function" and first["id"] != second["id"]
    check_answer(schemas.ChatCompletion, response.json())
    saying(CALL)
    assert roomy.chat(tools=BOTH).json()["choices"][0]["message"]["content"] is None


def test_a_stream_has_each_call_in_one_chunk(roomy, saying):
    saying(f"Well. {CALL}\n{CALL}")
    *chunks, done = events(roomy.chat(tools=BOTH, stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Well. "
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(call["index"], json.loads(call["function"]["arguments"])) for call in calls] == [
        (0, {"a": 3}),
        (1, {"a": 3}),
    ]
    assert (chunks[-1]["choices"][0]["finish_reason"], done) == ("tool_calls", "[DONE]")


def test_what_must_be_called_is_a_grammar_for_the_engine(roomy):
    named = {"type": "function", "function": {"name": "add"}}
    for choice, grammar in (("required", True), (named, True), ("auto", False)):
        assert roomy.chat(tools=BOTH, tool_choice=choice).status_code == 200
        sent = [arguments[0] for verb, arguments in roomy.worker.sent if verb == "submit"][-1]
        assert ("tool_call" in sent.sampling.grammar) is grammar
    response = roomy.chat(tools=[tool(parameters={"type": "objekt"})], tool_choice="required")
    assert (response.status_code, error_of(response)["param"]) == (400, "tools")
