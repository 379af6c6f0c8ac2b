"""What each byte of a connection leads to: the server's side is fed by hand, piece by piece, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.door.connections import Stage
from pliant.serving.http.door.door import HELD_BYTES
from tests.fixtures.door import Driven, Held, answer, post, settled

pytestmark = pytest.mark.virtual

GET = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("size", "expected"), [(982, 200), (983, 431)])
async def test_a_head_of_just_the_limit_passes_at_once_and_in_pieces(size, expected):
    site = Driven(head_bytes=1000)
    protocol, transport = site.connect()
    await site.send(protocol, b"GET / HTTP/1.1\r\nhost: test\r\na: " + b"b" * size + b"\r\n\r\n")
    assert transport.statuses == [expected]
    assert (b"must be at most 1000 bytes together" in transport.sent) is (expected == 431)
    protocol, transport = site.connect()
    await site.send(protocol, b"GET / HTTP/1.1\r\na: ", b"b" * (size - 32), b"b" * 50)
    assert transport.statuses == [431] * (expected == 431)


@pytest.mark.parametrize(
    ("pieces", "refused"),
    [
        ((b"1;", b"e" * 998), False),
        ((b"1;", b"e" * 999), True),
        ((b"1\r\na\r\n", b"1;", b"e" * 1001), False),
        ((b"1\r\na\r\n", b"1;", b"e" * 1002), True),
    ],
)
async def test_chunk_lines_may_add_so_many_bytes_to_a_body_and_more_for_each_of_its_own(pieces, refused):
    site = Driven(head_bytes=1000)
    protocol, transport = site.connect()
    await site.send(protocol, CHUNKED, *pieces)
    assert transport.statuses == [400] * refused
    assert (b"the body has more chunk lines than content" in transport.sent) is refused


async def test_so_many_requests_may_wait_on_a_connection_and_no_more():
    app = Held()
    site = Driven(app, pipelined=4)
    protocol, transport = site.connect()
    await site.send(protocol, post() * 5)
    assert (app.begun, site.codes, transport.ended) == (1, [], "")
    await site.send(protocol, post())
    assert (site.codes, transport.ended) == (["busy"], "closed")
    assert transport.statuses == [429] and b"more than 4 requests wait on this connection" in transport.sent


async def test_trailers_and_what_is_no_http_are_refused_with_a_sentence_in_the_same_shape():
    site = Driven()
    for pieces, sentence in (
        ((CHUNKED, b"0\r\n", b"x-t: a\r\n\r\n"), b"trailers are not accepted"),
        ((b"\x16\x03\x01\x02\x00\x01\r\n\r\n",), b"this is not HTTP/1.1"),
        ((b"GET / HTTP/1.1\r\nno colon\r\n\r\n",), b"this is not HTTP/1.1"),
    ):
        protocol, transport = site.connect()
        await site.send(protocol, *pieces)
        assert transport.statuses == [400] and sentence in transport.sent
        assert b"connection: close\r\n" in transport.sent and b'"code": "malformed"' in transport.sent
        assert transport.ended == "eof"
    assert site.codes == ["malformed"] * 3


async def test_the_app_is_called_once_so_much_of_a_body_is_here_and_not_before():
    app = Held()
    site = Driven(app)
    protocol, transport = site.connect()
    request = post(body=b"a" * (2 * HELD_BYTES))
    head = request[: -2 * HELD_BYTES]
    await site.send(protocol, head, b"a" * (HELD_BYTES - 1))
    assert (app.begun, len(site.state.tasks)) == (0, 0)
    await site.send(protocol, b"a")
    assert (app.begun, len(site.state.tasks), transport.sent) == (1, 1, b"")
    app.release.set()
    await site.send(protocol, b"a" * HELD_BYTES)
    await asyncio.sleep(0.1)
    assert (transport.statuses, len(site.state.tasks)) == ([200], 0)


async def test_an_error_is_never_written_into_an_answer_that_has_begun():
    async def half(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await asyncio.sleep(10.0)
        await send({"type": "http.response.body", "body": b"other"})

    site = Driven(half)
    protocol, transport = site.connect()
    await site.send(protocol, GET)
    sent = transport.sent
    assert sent.endswith(b"half")
    await site.send(protocol, b"no http\r\n\r\n")
    await asyncio.sleep(11.0)
    assert (transport.sent, transport.ended, site.codes) == (sent, "closed", [])


async def test_a_connection_waits_in_turn_for_a_head_a_body_its_answer_and_the_next_request():
    turns = asyncio.Semaphore(0)

    async def one_a_turn(scope, receive, send) -> None:
        await turns.acquire()
        await answer(scope, receive, send)

    site = Driven(one_a_turn)
    protocol, transport = site.connect()
    stages = []

    async def send(*pieces: bytes) -> None:
        await site.send(protocol, *pieces)
        stages.append(site.door.connections.stage(protocol))

    async def finish() -> None:
        turns.release()
        await settled()
        stages.append(site.door.connections.stage(protocol))

    await send()
    await send(post()[:10])
    await send(post()[10:-2])
    await send(b"{}")
    await finish()
    await send(b"\r\n")
    await send(post(), post()[:-2])  # the second is not yet whole
    await finish()
    await send(b"{}")
    await send(post())
    await finish()
    await finish()
    first = [Stage.IDLE, Stage.HEAD, Stage.BODY, Stage.ANSWER, Stage.IDLE]
    pipelined = [Stage.IDLE, Stage.ANSWER, Stage.BODY, Stage.ANSWER, Stage.ANSWER, Stage.ANSWER, Stage.IDLE]
    assert stages == first + pipelined
    assert transport.statuses == [200] * 4
    protocol.connection_lost(None)
    assert len(site.door.connections) == 0


async def test_who_may_not_send_a_request_is_judged_by_its_head():
    def judge(scope) -> None:
        raise ApiError(401, "unauthorized", f"{scope['method']} {scope['path']} needs a key")

    site = Driven(judge=judge)
    protocol, transport = site.connect()
    await site.send(protocol, post()[:-2])
    assert transport.statuses == [401] and b"POST /predict needs a key" in transport.sent
    await site.send(protocol, b"{}", GET)
    assert (transport.statuses, site.codes) == ([401, 200], ["unauthorized"])
