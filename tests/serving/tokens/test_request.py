"""Large forms: they are read piece by piece, to the same request."""

from __future__ import annotations

import asyncio
import random

from starlette.requests import Request

from serving.tokens.request import PIECE_BYTES, read_request

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


def test_a_large_form_is_the_same_request_and_others_have_turns_meanwhile():
    turns, image = 0, random.Random(0).randbytes(20 * PIECE_BYTES)

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main():
        beside = asyncio.create_task(other())
        request = await read_request(post(form(image)), 2 * len(image), 60.0)
        beside.cancel()
        return request

    request = asyncio.run(main())
    assert (request.image, request.task, request.deadline) == (image, "digits", 2.0)
    assert turns >= 20
