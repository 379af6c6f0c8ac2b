"""A request that is recognised without parsing is what the parser would see."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.serving.http.door.whole_request import path_of_post
from tests.fixtures.door import post

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
    "request_, path",
    [
        (post("/v1/predict"), "/v1/predict"),
        (post("/v1/predict", body=b""), "/v1/predict"),
        (post("/v1/predict?a=b", body=b"\r\n\r\nPOST / HTTP/1.1"), "/v1/predict"),
        (post(Connection="Keep-Alive", Content_Type="application/json"), "/predict"),
        (post(x="content of no length"), "/predict"),
    ],
)
def test_a_plain_request_is_recognised(request_, path):
    assert path_of_post(request_, MOST) == path


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
