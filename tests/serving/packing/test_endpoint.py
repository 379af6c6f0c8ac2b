"""A request becomes submissions to the engine, one a choice, or is refused at once where its targets cannot be kept."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from starlette.datastructures import Headers

from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.forecast import Forecast
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.registry.names import PACKING_PREFIX
from pliant.serving.client import Client
from pliant.serving.packing.bodies import CompletionBody
from pliant.serving.packing.request import PromptInput, read_request
from tests.fixtures.packing.fakes import TALE, new_tokenizer
from tests.fixtures.packing.in_process import CONTEXT, QUIET, error_of, publish, serving

BODY = {"model": "tales", "prompt": "Tell me"}
PLAIN = replace(read_request(BODY, Headers(), CompletionBody, QUIET), sampling=Sampling())


@pytest.fixture
def service(registry):
    with serving(registry) as service:
        service.worker.held = True
        yield service
        service.worker.held = False


def opened(service, arrived: float = 100.0, **changes):
    """Open a request; return its reply and what was submitted for it."""
    before = len(service.worker.sent)
    reply = service.wait(service.endpoint.open(replace(PLAIN, **changes), arrived))
    return reply, [arguments[0] for verb, arguments in service.worker.sent[before:] if verb == "submit"]


def test_each_choice_is_a_submission_of_its_own(service):
    tokens = {text: tuple(new_tokenizer().encode(text).ids) for text in ("Tell me", "What")}
    arrived = service.endpoint.now
    service.predict = lambda texts: [Forecast((float(len(text)),) * 8, len(text)) for text in texts]
    reply, submissions = opened(
        service,
        arrived,
        prompts=(PromptInput("prompt[0]", text="Tell me"), PromptInput("prompt[1]", text="What")),
        choices=2,
        best_of=2,
        max_tokens=9,
        sampling=Sampling(1.0, 0.5, 4, 6),
        deadline=250.0,
        ttft=50.0,
        tpot=20.0,
        utility=3.0,
        priority=-2,
        offline=True,
        client=Client("ann", 2.0),
    )
    stride, seeds = 0x9E3779B97F4A7C15, 2**63
    assert submissions == [
        Submission(
            Prompt(
                id=index,
                arrival=arrived,
                tokens=len(tokens[text]),
                limit=9,
                forecast=(float(len(text)),) * 8,
                bucket=len(text),
                deadline=arrived + 250.0,
                ttft=50.0,
                tpot=20.0,
                utility=3.0,
                priority=-2,
                offline=True,
                tenant="ann",
                weight=2.0,
            ),
            tokens[text],
            Sampling(1.0, 0.5, 4, (6 + index * stride) % seeds),
        )
        for index, text in enumerate(("Tell me", "Tell me", "What", "What"))
    ]
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert [choice.prompt for choice in reply.choices] == ["Tell me"] * 2 + ["What"] * 2
    chunk = reply.usage()
    assert (chunk["model"], chunk["usage"]["prompt_tokens"]) == ("tales", sum(map(len, tokens.values())))
    assert chunk["system_fingerprint"] == "fp_" + service.registry.version(PACKING_PREFIX + "tales").digest[:12]
    assert service.sample("pliant_arrivals_total", task="tales") == 4


def test_a_request_that_names_no_deadline_has_all_the_time_and_room_that_there_is(service):
    reply, (submission,) = opened(service)
    assert submission.prompt.deadline == FOREVER
    assert submission.prompt.limit == CONTEXT - submission.prompt.tokens
    assert (submission.prompt.tenant, submission.prompt.weight) == ("", 1.0)
    reply, _ = opened(service, echo=True)
    assert reply.choices[0].echo == "Tell me"


def test_a_request_that_is_read_while_a_new_champion_comes_is_read_again_by_it(service, registry):
    former = service.worker

    async def run():
        forecaster = service.assembly.generations.present.handlers["tales"].forecaster
        forecast = forecaster.forecast

        async def slow(texts):
            forecasts = await forecast(texts)
            publish(registry, seed=1)
            await service.endpoint.refresh()
            return forecasts

        forecaster.forecast = slow
        return await service.endpoint.open(PLAIN, 0.0)

    reply = service.wait(run())
    assert service.worker is not former
    assert [verb for verb, _ in former.sent] == [] and [verb for verb, _ in service.worker.sent] == ["submit"]
    assert (
        reply.usage()["system_fingerprint"] == "fp_" + service.registry.version(PACKING_PREFIX + "tales", 2).digest[:12]
    )


def test_outputs_on_their_way_end_where_they_began(registry):
    with serving(registry) as service:
        former = service.worker
        former.held = True

        async def taking_over():
            asking = asyncio.create_task(service.posting("/completions", {"prompt": "a", "temperature": 0}))
            await service.until(lambda: service.engine.pending == 1)
            publish(registry, seed=1)
            assert (await service.posting("/refresh", {})).json()["outcome"] == "changed"
            told = (await service.posting("/completions", {"prompt": "a", "temperature": 0})).json()
            assert told["choices"][0]["text"] == TALE and service.worker is not former
            assert service.assembly.generations.draining == 1
            former.held = False
            assert (await asking).json()["choices"][0]["text"] == TALE
            await service.until(lambda: former.stopped)

        service.wait(taking_over())
        assert service.status()["models"][0]["generator"]["version"] == 2
        assert registry.discarded  # the former's files


@pytest.fixture
def idle(registry):
    with serving(registry) as idle:
        yield idle


@pytest.fixture
def busy(idle):
    """A service whose engine makes no step, with more waiting than it has places for."""
    idle.worker.held = True
    replies = [idle.wait(idle.endpoint.open(replace(PLAIN, max_tokens=100), idle.endpoint.now)) for _ in range(300)]
    yield idle
    for reply in replies:
        reply.cancel()
    idle.worker.held = False


def test_an_answer_says_when_its_tokens_came_and_whether_its_targets_were_kept(idle):
    (choice,) = idle.complete(slo_ttft_ms=50_000, slo_tpot_ms=10_000).json()["choices"]
    facts = choice["pliant"]
    assert 0 < facts["tpot_seconds"] < facts["ttft_seconds"] < 50 and facts["on_time"]
    assert idle.sample("pliant_targets_total", task="tales", kept="true") == 1
    idle.complete()
    assert idle.sample("pliant_targets_total", task="tales", kept="true") == 1, "it had none"


def test_what_cannot_be_kept_is_refused_at_once_with_the_time_to_come_again(busy):
    before, began = len(busy.worker.sent), time.perf_counter()
    response = busy.complete(slo_ttft_ms=1)
    assert time.perf_counter() - began < 1.0
    error = error_of(response)
    assert (response.status_code, error["code"]) == (503, "late")
    assert "first token within 0.001 s" in error["message"] and int(response.headers["retry-after"]) >= 1
    assert len(busy.worker.sent) == before, "the engine never hears of it"
    assert busy.sample("pliant_outcomes_total", task="tales", outcome="dropped_refused") == 1
    pending = busy.status()["pending"]
    assert pending == 300


def test_deadline_and_targets_leave_time_for_the_way_back_and_are_what_the_door_goes_by(idle, monkeypatch):
    front = idle.endpoint.front_door
    assert front.usual_deadline == 10.0
    monkeypatch.setattr(front, "way_back", lambda _now: 2.0)
    before = idle.endpoint.now
    assert idle.complete(deadline=50, slo_ttft_ms=30_000).status_code == 200
    (prompt,) = [arguments[0].prompt for verb, arguments in idle.worker.sent if verb == "submit"]
    assert before - 2.0 <= prompt.arrival <= idle.endpoint.now - 2.0
    assert (prompt.deadline - prompt.arrival, prompt.ttft) == (pytest.approx(50.0), 30.0)
    assert front.usual_deadline == 10.0, "an output takes seconds by itself: no deadline counts for more"
    for _ in range(10):
        idle.complete(deadline=50, slo_ttft_ms=100)
    assert front.usual_deadline < 10.0
