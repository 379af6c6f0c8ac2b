"""Limits of connections: what a client may send, how long it may take, and what ends with it. A real server answers."""

from __future__ import annotations

import logging

import httptools
import pytest
import uvicorn
import uvicorn.config
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from pliant.serving.http.api_errors import error_response
from pliant.serving.http.door.door import Door, LimitedProtocol, install, path_of_post
from pliant.serving.http.door.load import MeasuredLoop
from tests.fixtures.door import Held, answer, behind_the_door, post, rest, status, until


@pytest.mark.parametrize("lines, expected", [(99, 200), (100, 431)])
def test_the_number_of_headers_is_limited(lines, expected):
    request = b"GET / HTTP/1.1\r\nhost: test\r\n" + b"a: b\r\n" * lines + b"\r\n"
    with behind_the_door(answer) as server:
        assert status(server.ask(request)) == expected


@pytest.mark.parametrize(
    "begin, expected",
    [
        (b"", None),
        (b"GET / HTTP/1.1\r\nhost: ", 408),
        (post(body=b"12345")[:-3], 408),
        (b"GET / HTTP/1.1\r\nhost: test\r\n\r\n", 200),
    ],
    ids=["silent", "head", "body", "idle"],
)
def test_a_connection_that_is_not_used_in_time_is_closed(begin, expected):
    with behind_the_door(answer, head_seconds=0.1, idle_seconds=0.1, body_seconds=0.1) as server:
        connection = server.connect()
        connection.sendall(begin)
        reply = rest(connection)
        connection.close()
        assert (status(reply) if reply else None) == expected


def test_a_request_ends_with_its_client_and_is_no_error(caplog):
    app = Held()
    with caplog.at_level(logging.WARNING), behind_the_door(app) as server:
        connection = server.connect()
        connection.sendall(post())
        until(lambda: app.begun == 1)
        connection.close()
        until(lambda: app.cancelled == 1)
        assert status(server.ask()) == 200
    assert caplog.messages == []


def test_a_server_of_usual_settings_gets_the_doors_protocol_and_a_loop_that_it_measures(monkeypatch):
    for table in ("HTTP_PROTOCOLS", "LOOP_FACTORIES"):
        monkeypatch.setattr(uvicorn.config, table, dict(getattr(uvicorn.config, table)))
    door = Door(lambda _path: error_response, lambda _path: True)
    install(door)
    config = uvicorn.Config(answer, log_config=None)
    config.load()
    loop = config.get_loop_factory()()
    try:
        protocol = config.http_protocol_class(config, ServerState(), {}, _loop=loop)
        assert isinstance(protocol, LimitedProtocol) and protocol.get_buffer(-1) is door.buffer
        assert isinstance(loop, MeasuredLoop)
        door.load.started()
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert door.load.earliest > 0.0, "the loop reports its looks to the door"
    finally:
        loop.close()


MOST = 1000


class Seen:
    """What httptools sees in some bytes: the messages that are complete."""

    def __init__(self, data: bytes) -> None:
        self.urls: list[bytes] = []
        self.complete, self._url = 0, b""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.urls.append(url)

    def on_message_complete(self) -> None:
        self.complete += 1
        self.kept = self.parser.should_keep_alive()


@pytest.mark.parametrize(
    "request_",
    [
        post()[:-1],
        post() + post(),
        post() + b"\n",
        post(Content_Length="2"),
        post(CONTENT_LENGTH="3"),
        post(Transfer_Encoding="chunked"),
        post(connection="close"),
        post(Connection="upgrade", upgrade="websocket"),
        post(expect="100-continue"),
        post("/%70redict"),
        post("/pr\u00e4dikt"),
        post(x="a" * MOST),
        post().replace(b"POST", b"GET"),
        post().replace(b"HTTP/1.1", b"HTTP/1.0"),
        post().replace(b"content-length: 2", b"content-length: +2"),
        post().replace(b"content-length: 2", b"content-length:2"),
        post().replace(b"content-length: 2", b"content-length: 2 "),
        post().replace(b"\r\n", b"\n"),
        b"POST /predict HTTP/1.1\r\nhost: test\r\n\r\n",
        b"",
    ],
)
def test_anything_else_is_left_to_the_parser(request_):
    assert path_of_post(request_, MOST) is None


PIECES = st.sampled_from(
    [
        b"POST /a HTTP/1.1\r\n",
        b"POST /b?c HTTP/1.1\r\n",
        b"GET /a HTTP/1.1\r\n",
        b"content-length: 2\r\n",
        b"Content-Length: 0\r\n",
        b"content-length : 2\r\n",
        b"content-length: 2, 2\r\n",
        b" content-length: 2\r\n",
        b"x: content-length: 2\r\n",
        b"transfer-encoding: chunked\r\n",
        b"connection: keep-alive\r\n",
        b"connection: keep-alive, close\r\n",
        b"host: test\r\n",
        b"\r\n",
        b"{}",
        b"\n",
        b"\r",
    ]
)


@given(st.lists(PIECES, max_size=9).map(b"".join))
def test_what_is_recognised_is_one_whole_message_to_the_parser(data):
    path = path_of_post(data, MOST)
    if path is None:
        return
    try:
        seen = Seen(data)
    except httptools.HttpParserError:
        return  # refused by the parser, too: nobody takes it for more than one request
    assert seen.complete == 1 and seen.kept
    assert seen.parser.get_method() == b"POST"
    assert httptools.parse_url(b"".join(seen.urls)).path == path.encode()
