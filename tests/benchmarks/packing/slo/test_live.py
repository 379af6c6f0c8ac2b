"""The live benchmark of targets counts what a client sees of a server, refusals and broken streams included."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from contextlib import contextmanager

import pytest
from aiohttp import web

from benchmarks.packing.slo import live
from benchmarks.packing.slo.live import OURS, RIVAL, LiveResult, Seen, row
from pliant.errors import WorkerError


@contextmanager
def server(handle):
    """Give the address of a server whose chats `handle` answers."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

    async def start():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(site._server.sockets[0].getsockname()[1])
        ready.set()
        return runner

    def run():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield f"http://127.0.0.1:{address[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


async def chat(request):
    body = await request.json()
    match body["messages"][0]["content"]:
        case "refuse":
            return web.json_response({"error": {}}, status=503)
        case "break":
            response = web.StreamResponse()
            await response.prepare(request)
            request.transport.close()
            return response
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in ("", "a", "b", "c"):
        event = {"choices": [{"delta": {"content": piece}}]}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await asyncio.sleep(0.05)
    usage = {"choices": [], "usage": {"completion_tokens": 7}}
    await response.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
    return response


def test_a_client_sees_first_text_pace_refusals_and_what_breaks_off():
    with server(chat) as url:
        chats = [[{"role": "user", "content": text}] for text in ("say", "refuse", "break")]
        said, refused, broken = live.send(url, "m", chats, [0.0, 0.05, 0.1], 8)
    assert (said.status, said.tokens) == (200, 7) and 0.04 < said.first < said.last < 20
    assert said.pace == pytest.approx((said.last - said.first) / 6)
    assert refused.status == 503 and math.isnan(refused.first) and 0 < refused.last < 20
    assert broken.status in (0, 200) and broken.tokens == 0 and not broken.good(60, 60)
    assert live._answered([said]) == pytest.approx(1 / said.last)
    with pytest.raises(WorkerError, match=r"not answered whole: \[200, 503\]"):
        live._answered([said, refused])


def test_targets_compare_the_goodput_of_the_same_loads():
    good, late, refused = Seen(200, 0.5, 1.5, 11), Seen(200, 2.0, 3.0, 11), Seen(503, math.nan, 0.004, 0)
    rows = [
        row(load, server, seen, 10.0, 1.0, 0.2)
        for load in live.LOADS
        for server, seen in ((OURS, [good] * 9 + [late, refused]), (RIVAL, [good] * 3 + [late] * 8))
    ]
    result = LiveResult(rows, 1.0, 0.2, 2.0, 64)
    first, second, kept, refusals = result.targets()
    assert first.measured == second.measured == pytest.approx(3.0)
    assert (kept.measured, kept.met) == (pytest.approx(0.9), False)
    assert refusals.measured == pytest.approx(4.0)
    assert rows[0].cells()[2:6] == ("11", "10", "9", "0.90")
    nothing = [row(load, RIVAL, [late], 10.0, 1.0, 0.2) for load in live.LOADS]
    worst = LiveResult([*rows[::2], *nothing], 1.0, 0.2, 2.0, 64)
    assert worst.targets()[0].measured == pytest.approx(0.9 / 0.05)


def test_chats_have_a_history_of_held_out_turns_and_end_with_a_question():
    chats = live.conversations(3)
    assert len(chats) > 100 and chats == live.conversations(3)
    for chat in chats:
        assert [message["role"] for message in chat] == [live.ROLES[at % 2] for at in range(len(chat))]
        assert len(chat) % 2 == 1 and len(chat) <= 7
        pairs = [len(a["content"]) + len(b["content"]) for a, b in zip(chat[:-1:2], chat[1::2], strict=True)]
        assert all(size < live.MOST_CHARACTERS for size in pairs)
    assert len({chat[-1]["content"] for chat in chats}) > 100
