"""Routes of packing answer in OpenAI's shape, and give up the outputs of whoever is gone or got an error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import ClientDisconnect

from pliant.serving.packing import api
from pliant.serving.packing.reply import Reply
from tests.fixtures.packing.in_process import error_of, generator, publish, serving
from tests.fixtures.registry import FolderRegistry


@pytest.mark.parametrize("error", [api.DisconnectedError, ClientDisconnect])
def test_a_client_that_has_gone_is_no_error_of_the_service(error):
    async def gone(request, endpoint):
        raise error

    counted = []
    endpoint = SimpleNamespace(metrics=SimpleNamespace(errored=counted.append), now=0.0)
    request = SimpleNamespace(state=SimpleNamespace(), scope={}, app=None)
    response = asyncio.run(api.guarded(gone, lambda _request: endpoint)(request))
    assert (response.status_code, response.body, counted) == (499, b"", [])


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
