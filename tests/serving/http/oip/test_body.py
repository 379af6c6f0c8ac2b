"""Bodies are decompressed within their limit, and divided where the header says; all else is an error of the caller."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.large_body import HEAVY, INLINE_BYTES
from pliant.serving.http.oip import body
from pliant.serving.http.oip.body import PIECE_BYTES, WINDOWS, check_type, decompress, note_weight, read_parts

COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress}


def request(content: bytes = b"", pieces: int = 1, **headers: str) -> Request:
    """A request whose body comes in so many pieces."""
    size = -(-len(content) // pieces) or 1
    parts = [content[start : start + size] for start in range(0, len(content), size)] or [b""]
    sent = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": sent}, receive)


def read(content: bytes, pieces: int = 1, most: int = 1_000_000, **headers: str) -> tuple[bytes, bytes]:
    json, binary = asyncio.run(read_parts(request(content, pieces, **headers), most))
    return b"".join(json), binary


def error_of(content: bytes, most: int = 1_000_000, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as raised:
        read(content, 1, most, **headers)
    return raised.value


@given(st.binary(max_size=60), st.data(), st.sampled_from([None, *COMPRESS]), st.integers(1, 7))
def test_a_body_is_divided_where_the_header_says_however_it_comes(content, data, encoding, pieces):
    length = data.draw(st.integers(0, len(content)))
    headers = {"inference_header_content_length": str(length)} | ({"content_encoding": encoding} if encoding else {})
    sent = COMPRESS[encoding](content) if encoding else content
    assert read(sent, pieces, **headers) == (content[:length], content[length:])


@pytest.mark.parametrize("length", ["-1", "6", "1.0", "", "a", "²", "0x1", "9" * 5000, " 1"])
def test_a_length_that_is_no_part_of_the_body_is_refused(length):
    with pytest.raises(InputError, match="a whole number of bytes up to 5, as the body has"):
        read(b"12345", inference_header_content_length=length)


def test_without_the_header_all_is_json():
    assert read(b"{}") == (b"{}", b"")
    assert read(gzip.compress(b"{}"), content_encoding="GZIP") == (b"{}", b"")
    assert read(b"{}", content_encoding="identity") == (b"{}", b"")


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_bodies_of_all_sizes_are_whole_after_decompression(encoding, size):
    assert read(COMPRESS[encoding](b"a" * size), 3, content_encoding=encoding) == (b"a" * size, b"")
    noise = bytes((index * 7919 + index // 251) % 256 for index in range(size))
    assert read(COMPRESS[encoding](noise), 3, content_encoding=encoding)[0] == noise


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_bomb_is_refused_long_before_it_is_whole(encoding, monkeypatch):
    sizes = []
    step = body._next

    def counted(stream, data):
        sizes.append(len(part := step(stream, data)))
        return part

    monkeypatch.setattr(body, "_next", counted)
    bomb = COMPRESS[encoding](b"\0" * 100_000_000)
    error = error_of(bomb, 600_000, content_encoding=encoding)
    assert (error.status, str(error)) == (
        413,
        "body is longer once it is decompressed, but must be at most 600000 bytes",
    )
    assert sum(sizes) <= 600_000 + PIECE_BYTES
    assert error_of(bytes(600_001), 600_000).status == 413


@pytest.mark.parametrize("encoding", COMPRESS)
@given(data=st.data())
def test_a_broken_stream_is_refused(encoding, data):
    whole = COMPRESS[encoding](b"a text that is compressed")
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\0", whole + whole, b"no stream at all"):
        error = error_of(broken, content_encoding=encoding)
        assert error.status == 400 and str(error).startswith("body cannot be decompressed: ")


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd", "x" * 500, "compress"])
def test_another_encoding_is_refused_and_the_known_ones_are_named(encoding):
    error = error_of(b"{}", content_encoding=encoding)
    assert (error.status, error.headers) == (415, {"accept-encoding": "gzip, deflate"})
    assert "but must be gzip, deflate or identity" in str(error) and len(str(error)) < 200


def test_others_are_served_while_a_body_is_decompressed():
    async def main():
        turns, done = 0, False

        async def other():
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await decompress([gzip.compress(b"\0" * (4 * PIECE_BYTES))], WINDOWS["gzip"], 10**7)
        done = True
        await task
        return turns

    assert asyncio.run(main()) >= 4


def test_types_that_a_page_of_another_website_can_send_unasked_are_refused():
    for headers in (
        {"content_type": "application/json"},
        {"content_type": "application/octet-stream"},
        {"content_type": "Application/JSON; charset=utf-8", "origin": "http://elsewhere"},
        {},
    ):
        check_type(request(**headers))
    for headers in (
        {"content_type": "text/plain"},
        {"origin": "http://elsewhere"},
        {"content_type": "multipart/form-data"},
    ):
        with pytest.raises(ApiError, match="must be application/json or application/octet-stream") as raised:
            check_type(request(**headers))
        assert raised.value.status == 415


def test_many_bytes_of_tensors_are_checked_beside_the_event_loop():
    light, heavy, parsed = request(), request(), request()
    note_weight(light, memoryview(bytes(INLINE_BYTES)))
    note_weight(heavy, memoryview(bytes(INLINE_BYTES + 1)))
    parsed.scope[HEAVY] = True
    note_weight(parsed, memoryview(b""))
    assert [each.scope[HEAVY] for each in (light, heavy, parsed)] == [False, True, True]


def test_a_large_body_is_put_together_in_a_thread_with_the_same_parts():
    content = b"{}" + bytes(INLINE_BYTES)
    assert read(content, 5, inference_header_content_length="2") == (b"{}", bytes(INLINE_BYTES))
