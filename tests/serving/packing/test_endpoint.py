"""A request becomes submissions to the engine, one a choice, with their own prompts, limits, forecasts and seeds."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from pliant.device import resolve_device
from pliant.errors import InputError
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing.request import NO_TOOLS, GenerationRequest, PromptInput
from tests.fixtures.packing.fakes import MEMORY, TALE, new_tokenizer
from tests.fixtures.packing.in_process import CONTEXT, MARGINAL, QUIET, SAID, generator, packing, predictor, publish
from tests.fixtures.packing.in_process import serving as serving_registry
from tests.fixtures.registry import FolderRegistry

PLAIN = GenerationRequest(
    model="tales",
    prompts=(PromptInput("prompt", text="Tell me"),),
    choices=1,
    best_of=1,
    max_tokens=None,
    max_tokens_name="max_tokens",
    sampling=Sampling(),
    tools=NO_TOOLS,
    form="response_format",
    logprobs=False,
    stops=(),
    stream=False,
    usage=False,
    continuous_usage=False,
    echo=False,
    deadline=None,
    ttft=None,
    tpot=None,
    utility=1.0,
    priority=0,
    offline=False,
)


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish(registry)
    return registry


@pytest.fixture
def service(registry):
    with serving_registry(registry) as service:
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
    service.predict = lambda texts: [((float(len(text)),) * 8, len(text)) for text in texts]
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
    info = reply.info
    assert (info.model, info.prompt_tokens, info.deadline) == ("tales", sum(map(len, tokens.values())), 250.0)
    assert info.fingerprint == "fp_" + service.registry.version(PACKING_PREFIX + "tales").digest[:12]
    assert service.sample("pliant_arrivals_total", task="tales") == 4


def test_a_request_that_names_no_deadline_has_all_the_time_and_room_that_there_is(service):
    reply, (submission,) = opened(service)
    assert (submission.prompt.deadline, reply.info.deadline) == (FOREVER, FOREVER)
    assert submission.prompt.limit == CONTEXT - submission.prompt.tokens
    assert (submission.prompt.tenant, submission.prompt.weight) == ("", 1.0)
    assert (reply.info.usage, reply.info.echo) == (False, False)
    reply, _ = opened(service, usage=True, echo=True)
    assert (reply.info.usage, reply.info.echo) == (True, True)
    assert reply.choices[0].echo == "Tell me"


def test_stop_strings_and_end_tokens_end_an_output(service):
    reply, _ = opened(service, stops=("tea",))
    output = reply.choices[0].output
    assert output.ends == {0}
    service.worker.held = False
    service.wait(service.until(lambda: output.finish))
    assert output.at_stop_string and output.writer.take() == TALE[: TALE.index("tea")]


@pytest.mark.parametrize(
    ("prompt", "threaded"),
    [
        (PromptInput("prompt", text=" " * 16383 + "a"), False),
        (PromptInput("prompt", text=" " * 16384 + "a"), True),
        (PromptInput("prompt", ids=(5,) * 16384), False),
        (PromptInput("prompt", ids=(5,) * 16385), True),
        (PromptInput("messages", messages=({"role": "user", "content": "a"},)), True),
    ],
)
def test_long_prompts_and_conversations_are_read_in_a_thread(service, monkeypatch, prompt, threaded):
    handler = service.assembly.generations.present.handlers["tales"]
    threads = []

    def read(self, prompt):
        threads.append(threading.current_thread() is not threading.main_thread())
        raise InputError("prompt", "read", "nothing more")

    monkeypatch.setattr(type(handler.reader), "read", read)
    with pytest.raises(InputError):
        opened(service, prompts=(prompt,))
    assert threads == [threaded]


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
    assert reply.info.fingerprint == "fp_" + service.registry.version(PACKING_PREFIX + "tales", 2).digest[:12]


def test_a_full_queue_is_an_error_before_the_prompt_is_read_and_counted(registry):
    with serving_registry(registry, QUIET.replace(max_waiting=2)) as service:
        service.worker.held = True
        opened(service, choices=2, best_of=2)
        with pytest.raises(ApiError) as refused:
            opened(service, prompts=(PromptInput("prompt", ids=(10_000,)),), client=Client("", 1.0))
        assert (refused.value.status, refused.value.code) == (429, "full")
        assert service.sample("pliant_outcomes_total", task="tales", outcome="dropped_full") == 1
        assert service.engine.pending == 2
        service.worker.held = False
        service.wait(service.until(lambda: service.engine.pending == 0))


def test_where_several_models_are_served_the_request_names_one(registry):
    digest = registry.publish(PACKING_GENERATOR + "songs", generator(seed=7))
    other = registry.publish(PACKING_PREDICTOR + "songs", predictor(digest))
    registry.publish(PACKING_PREFIX + "songs", packing(digest, other, name="songs"))
    with serving_registry(registry) as service:
        assert list(service.endpoint.models()) == ["songs", "tales"]
        reply, _ = opened(service, model="songs")
        assert reply.info.model == "songs"
        with pytest.raises(
            InputError, match="model is missing, but must be given, as several are served: songs, tales"
        ):
            opened(service, model=None)
        with pytest.raises(ApiError, match="model is 'gpt', but must be one of songs, tales"):
            opened(service, model="gpt")


def test_the_status_describes_each_model_and_its_engine(service, registry):
    plan, made, said = (
        registry.version(prefix + "tales") for prefix in (PACKING_PREFIX, PACKING_GENERATOR, PACKING_PREDICTOR)
    )
    _open = opened(service, choices=2, best_of=2)  # its requests end with it
    status = service.wait(service.endpoint.status())
    assert [model.pop("engines") for model in status["models"]] == [
        [{"device": resolve_device("auto"), **status["models"][0]["engine"]}]
    ]
    begun = {
        name: status["models"][0]["engine"][name] for name in ("iterations", "tokens")
    }  # whether one is over by now
    assert json.loads(json.dumps(status["models"])) == [
        {
            "name": "tales",
            "version": 1,
            "digest": plan.digest,
            "generator": {"version": 1, "digest": made.digest},
            "predictor": {"version": 1, "digest": said.digest},
            "context": CONTEXT,
            "device": "a-device",
            "precision": "float32",
            "page_tokens": 4,
            "cache_bytes": 64 * 4 * 64,
            "coverage": {},
            "forecasts": {"alive": True, "last_minute": 1, "late": 0.0, "failed": 0.0},
            "engine": {
                "sequences": MEMORY.sequences,
                "sequences_planned": MEMORY.sequences,
                "out_of_memory": 0,
                "alive": True,
                "waiting": 0,
                "running": 2,
                "pages": MEMORY.pages,
                "pages_used": 2 * MEMORY.need(len(new_tokenizer().encode("Tell me").ids)),
                "host_pages_used": 0,
                **begun,
                "preemptions": 0,
                "recomputed": 0,
                "shared": 0,
                "books": "balanced",
            },
        }
    ]
    assert (status["policy"], status["waiting"], status["pending"]) == ("default", 2, 2)
    assert service.sample("pliant_running", task="tales") == 2, "whoever asks for the status refreshes the metrics"


def test_a_forecast_that_comes_late_is_that_of_all_outputs(registry):
    go = threading.Event()
    with serving_registry(registry, QUIET.replace(predict_limit=0.01)) as service:
        service.predict = lambda texts: [SAID for _ in texts if go.wait(60)]
        reply, (submission,) = opened(service)
        go.set()
        assert (submission.prompt.forecast, submission.prompt.bucket) == (MARGINAL, 0)
        assert reply.choices[0].forecast.origin == "late"
        assert service.sample("pliant_predictions_total", task="tales", origin="late") == 1
        opened(service)
        (model,) = service.wait(service.endpoint.status())["models"]
        assert model["forecasts"] == {"alive": True, "last_minute": 2, "late": 0.5, "failed": 0.0}
        service.wait(service.until(lambda: service.engine.pending == 0))


def test_while_a_predictor_restarts_all_outputs_count_as_usual_and_the_status_says_so(registry):
    with serving_registry(registry, QUIET) as service:
        (fake,) = service.predictors
        fake.trouble = "no memory"
        service.loop.call_soon(fake.die)
        service.wait(service.until(lambda: not fake.alive))
        reply, (submission,) = opened(service)
        assert (submission.prompt.forecast, reply.choices[0].forecast.origin) == (MARGINAL, "failed")
        (model,) = service.wait(service.endpoint.status())["models"]
        assert model["forecasts"] == {"alive": False, "last_minute": 1, "late": 0.0, "failed": 1.0}
        assert service.sample("pliant_predictor_failures_total", task="tales") == 1
        service.wait(service.until(lambda: service.engine.pending == 0))


def test_the_metrics_of_an_engine_are_refreshed_with_each_end(service):
    service.worker.held = False
    reply, _ = opened(service)
    service.worker.on_message("status", replace(service.worker.engine.status(), running=5))
    service.wait(service.until(lambda: reply.ended))
    assert service.sample("pliant_running", task="tales") == 5
    assert service.sample("pliant_answers_total", task="tales", generator_version="1") == 1
