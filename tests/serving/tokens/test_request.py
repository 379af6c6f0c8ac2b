"""Large forms: they are read piece by piece, to the same request."""

from __future__ import annotations

import asyncio
import base64
import random

import pytest
from starlette.requests import Request

from pliant.serving.tokens.api import BASE64_AT_ONCE, PIECE_BYTES, _from_base64, in_pieces, read_request

BOUNDARY = "piece"


def form(image: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n'
    parts = [(head % (name, "")).encode() + value for name, value in (("task", b"digits"), ("deadline", b"2"))]
    parts.append((head % ("image", '; filename="picture"')).encode() + image)
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def post(body: bytes) -> Request:
    headers = [(b"content-type", f"multipart/form-data; boundary={BOUNDARY}".encode())]

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "path": "/predict", "headers": headers}, receive)


def test_a_large_form_gives_the_image_as_it_is():
    image = random.Random(0).randbytes(3 * PIECE_BYTES + 1)
    request = asyncio.run(read_request(post(form(image)), 2 * len(image), 60.0))
    assert (request.image, request.task, request.deadline) == (image, "digits", 2.0)


def test_a_long_base64_is_decoded_in_parts_to_the_same_bytes():
    for extra in (-3, 0, 3, BASE64_AT_ONCE):
        image = random.Random(2).randbytes(BASE64_AT_ONCE * 3 // 4 + extra)
        assert asyncio.run(_from_base64(base64.b64encode(image).decode())) == image
    for text in ("A" * BASE64_AT_ONCE + "%AAA", "%" * 8):
        with pytest.raises(ValueError, match="base64"):
            asyncio.run(_from_base64(text))


def test_others_have_a_turn_after_each_piece():
    turns, body, sizes = [], random.Random(1).randbytes(5 * PIECE_BYTES + 1), []

    async def main():
        loop = asyncio.get_running_loop()
        async for piece in in_pieces([body[: 2 * PIECE_BYTES], body[2 * PIECE_BYTES :]]):
            sizes.append((len(piece), len(turns)))
            loop.call_soon(turns.append, None)

    asyncio.run(main())
    assert sizes == [*((PIECE_BYTES, turn) for turn in range(5)), (1, 5), (0, 6)]
