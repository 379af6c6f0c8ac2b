"""Clients that disconnect or do not read: their outputs are cancelled, and the pages are free."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.fixtures.packing.fakes import TALE
from tests.fixtures.packing.in_process import QUIET, serving


@pytest.fixture
def service(registry):
    with serving(registry, QUIET.replace(stream_limit=1.0)) as service:
        yield service


class Client:
    """An ASGI client that can disconnect, and can stop reading after some messages."""

    def __init__(self, path: str, reads: float = float("inf"), **told) -> None:
        body = json.dumps({"model": "tales", "prompt": "Tell me", "temperature": 0, **told}).encode()
        self.scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        self.scope |= {"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http"}
        self.scope |= {"root_path": "", "client": ("test", 1), "server": ("test", 80), "asgi": {"spec_version": "2.3"}}
        self.incoming: asyncio.Queue = asyncio.Queue()
        self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.reads, self.messages = reads, []

    def go(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    async def send(self, message) -> None:
        if len(self.messages) >= self.reads:
            await asyncio.Event().wait()
        self.messages.append(message)

    async def ask(self, service) -> None:
        await service.app(self.scope, self.incoming.get, self.send)

    @property
    def text(self) -> str:
        pieces = b"".join(one.get("body", b"") for one in self.messages).decode().split("\n\n")
        told = [json.loads(piece.removeprefix("data: ")) for piece in pieces if piece and "[DONE]" not in piece]
        return "".join(piece["choices"][0]["text"] for piece in told)


def outcome(service, name: str) -> float | None:
    return service.sample("pliant_outcomes_total", task="tales", outcome=name)


async def asked(service, client: Client, count: int = 1) -> asyncio.Task:
    asking = asyncio.create_task(client.ask(service))
    await service.until(lambda: service.engine.pending == count)
    return asking


async def is_idle(service) -> None:
    await service.until(lambda: service.engine.pending == 0)
    report = await service.engine.poll()
    assert (report.status.pages_used, report.accounting_error) == (0, "")


@pytest.mark.parametrize("stream", [True, False])
def test_an_asker_that_goes_before_the_first_token_is_given_up(service, stream):
    service.worker.held = True

    async def going():
        client = Client("/completions", stream=stream, n=3)
        asking = await asked(service, client, 3)
        client.go()
        await service.until(lambda: sum(verb == "cancel" for verb, _ in service.worker.sent) == 3)
        await asking
        await is_idle(service)

    service.wait(going())
    assert outcome(service, "cancelled") == 3


def test_an_asker_that_goes_amid_its_stream_is_given_up(service):
    async def going():
        client = Client("/completions", stream=True)
        asking = await asked(service, client)
        await service.until(lambda: len(client.messages) > 4)
        service.worker.held = True
        client.go()
        await asking
        service.worker.held = False
        await is_idle(service)
        assert 0 < len(client.text) < len(TALE)

    service.wait(going())
    assert outcome(service, "cancelled") == 1


def test_a_client_that_stops_reading_is_given_up_after_the_limit(service):
    async def stalling():
        client = Client("/completions", stream=True, reads=4)
        await (await asked(service, client))
        await is_idle(service)
        assert len(client.messages) == 4

    service.wait(stalling())
    assert (outcome(service, "cancelled") or 0) + (outcome(service, "stop") or 0) == 1


def test_a_dropped_output_is_a_503_before_the_first_token_and_an_error_event_after(service):
    async def dropping():
        service.worker.held = True
        early = asyncio.create_task(service.posting("/completions", {"prompt": "a", "deadline": 1}))
        await service.until(lambda: service.engine.pending == 1)
        end(service, "late")
        refused = await early
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "late")
        assert refused.headers["retry-after"] == "1"
        service.worker.held = False
        late = Client("/completions", stream=True, deadline=1)
        asking = await asked(service, late)
        await service.until(lambda: len(late.messages) > 3)
        end(service, "late")
        await asking
        return late.messages

    messages = service.wait(dropping())
    *_, error, done, _ = b"".join(one.get("body", b"") for one in messages).decode().split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "late" and done == "data: [DONE]"
    assert outcome(service, "dropped_late") == 2


def end(service, how: str) -> None:
    from pliant.packing.engine.submission import Progress

    for id in list(service.worker.engine.submitted):
        service.worker.engine._forget(id)
        service.worker.on_message("progress", [Progress(id, (), how, 0.5, 0, 0, 0)])
