"""Reads the body of an inference request: decompressed, and divided into its JSON and the binary data after it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import SHOWN, content_type, read_body, shorten, too_large
from pliant.serving.http.large_body import HEAVY, INLINE_BYTES
from pliant.serving.workers.helper_process import small_pieces

JSON_LENGTH = "inference-header-content-length"
TYPES = ("application/json", "application/octet-stream")
WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content encodings -> the window bits of zlib, which say the format too."""
PIECE_BYTES = 256 * 1024  # that are decompressed before the event loop serves others: about a millisecond


def check_type(request: Request) -> None:
    """Raise `ApiError` (415) unless the content type is one of `TYPES`.

    Triton's client sends none. A page of another website can send a body without a type, too, and without asking first
    (CORS); its browser then names the page in the header Origin.
    """
    kind = content_type(request)
    if kind in TYPES or (not kind and "origin" not in request.headers):
        return
    message = f"content-type is {kind[:SHOWN] or 'missing'}, but must be {' or '.join(TYPES)}"
    raise ApiError(415, "unsupported_media_type", message, "content-type")


async def read_parts(request: Request, max_bytes: int) -> tuple[Sequence[bytes], memoryview]:
    """Return the JSON of a body, in pieces, and the bytes after it.

    Raises `ApiError`: 413 for more than `max_bytes`, also once it is decompressed, 415 for an unknown compression, 400 for a
    broken one; `InputError` unless the JSON is as long as the header `JSON_LENGTH` says.
    """
    window = _window(request)
    pieces: Sequence[bytes] = await read_body(request, max_bytes)
    if window is not None:
        pieces = await decompress(pieces, window, max_bytes)
    announced = request.headers.get(JSON_LENGTH)
    if announced is None:
        return pieces, memoryview(b"")
    size = sum(map(len, pieces))
    length = (
        int(announced) if announced.isascii() and announced.isdecimal() and len(announced) <= len(str(size)) else -1
    )
    if not 0 <= length <= size:
        raise InputError(JSON_LENGTH, shorten(announced), f"a whole number of bytes up to {size}, as the body has")
    body = b"".join(pieces) if size <= INLINE_BYTES else await asyncio.to_thread(b"".join, pieces)
    return [body[:length]], memoryview(body)[length:]


def note_weight(request: Request, binary: memoryview) -> None:
    """Note in the request's scope that its tensors take long to check if there are many bytes of them."""
    request.scope[HEAVY] = request.scope.get(HEAVY, False) or len(binary) > INLINE_BYTES


async def decompress(pieces: Sequence[bytes], window: int, max_bytes: int) -> list[bytes]:
    """Return the content of a compressed body, in pieces; others are served in between.

    Raises `ApiError`: 413 as soon as there are more than `max_bytes`, 400 if it is broken or more than one stream.
    """
    stream, content, size = zlib.decompressobj(window), [], 0
    for piece in small_pieces(pieces, PIECE_BYTES):
        rest: bytes | memoryview = piece
        while True:
            if stream.eof:
                raise _broken("there are bytes after its end")
            content.append(_next(stream, rest))
            size += len(content[-1])
            if size > max_bytes:
                raise too_large("longer once it is decompressed", max_bytes)
            await asyncio.sleep(0)
            rest = stream.unconsumed_tail or stream.unused_data
            if not rest and (stream.eof or len(content[-1]) < PIECE_BYTES):
                break
    if not stream.eof:
        raise _broken("its end is missing")
    return content


def _next(stream: zlib._Decompress, data: bytes | memoryview) -> bytes:
    try:
        return stream.decompress(data, PIECE_BYTES)
    except zlib.error as error:
        raise _broken(str(error)) from None


def _window(request: Request) -> int | None:
    """Return the window bits for the body's content encoding, None if it has none. Raises `ApiError` (415)."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in WINDOWS:
        message = f"content-encoding is {encoding[:SHOWN]}, but must be {', '.join(WINDOWS)} or identity"
        headers = {"accept-encoding": ", ".join(WINDOWS)}
        raise ApiError(415, "unsupported_encoding", message, "content-encoding", headers=headers)
    return WINDOWS[encoding]


def _broken(why: str) -> ApiError:
    return ApiError(400, "malformed", f"body cannot be decompressed: {why[:SHOWN]}", "body")
