"""Any raster image becomes RGB of the right size; anything else is an error before it costs much time."""

from __future__ import annotations

import asyncio
import io
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from pliant.errors import InputError
from pliant.models.image import COMPRESSED_PARTS, SCAN, SCANS, decode, pixel_passes
from pliant.serving.tokens import decoders
from pliant.serving.tokens.decoders import DecodeQueue, Decoders


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(body: bytes, size: int = 16, most_pixels: int = 1_000_000):
    async def main():
        return await Decoders(most_pixels).decode(body, size, 60.0)

    return asyncio.run(main())


def gradient(mode: str) -> Image.Image:
    return Image.linear_gradient("L").convert(mode)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return header + struct.pack(">I", 0) + b"IDAT"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_mode_of_a_png_becomes_rgb_of_the_requested_size(mode):
    deep = Image.fromarray(np.asarray(gradient("L")).astype(np.uint16) * 257)
    pixels = decoded(encoded(deep if mode == "I;16" else gradient(mode)))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (16, 16, 3)
    assert pixels[0].mean() < 30
    assert pixels[-1].mean() > 225


@pytest.mark.parametrize("width", [800, 2000], ids=["thread", "process"])
def test_a_larger_image_is_decoded_elsewhere_with_the_same_result(width):
    small = decoded(encoded(gradient("RGB")))
    body = encoded(gradient("RGB").resize((width, width)))
    large = decoded(body, most_pixels=5_000_000)
    assert np.abs(small.astype(int) - large).max() < 12
    assert np.array_equal(large, decode(body, 16, 5_000_000))


@pytest.mark.parametrize("kind", ["TIFF", "PPM"])
def test_formats_of_unbounded_work_are_refused(kind):
    with pytest.raises(InputError, match="image is not readable"):
        decoded(encoded(gradient("RGB"), kind))


def test_the_work_of_a_jpeg_is_its_pixels_times_its_scans():
    image = gradient("RGB")
    plain, progressive = encoded(image, "JPEG"), encoded(image, "JPEG", progressive=True)
    assert pixel_passes(plain, 10**6) == 256 * 256
    assert pixel_passes(progressive, 10**6) == 256 * 256 * progressive.count(SCAN) > 5 * 256 * 256
    last = progressive.rindex(SCAN)
    scans = progressive[:last] + progressive[last:-2] * SCANS + progressive[-2:]
    with pytest.raises(InputError, match=r"image is a JPEG of \d+ scans, but must be of at most 100 scans"):
        decoded(scans)


def test_a_png_whose_texts_are_large_is_refused():
    texts = b"".join(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(900_000))) for _ in range(3))
    body = encoded(gradient("L"))
    with pytest.raises(InputError, match="image is not readable"):
        decoded(body[:33] + texts + body[33:])


def test_a_png_of_many_compressed_profiles_is_refused_before_they_are_decompressed():
    profile = chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1000)))
    body = encoded(gradient("L"))
    assert decoded(body[:33] + profile * COMPRESSED_PARTS + body[33:]).shape == (16, 16, 3)
    with pytest.raises(
        InputError, match=r"image is a PNG of 17 compressed texts and profiles, but must be of at most 16"
    ):
        decoded(body[:33] + profile * (COMPRESSED_PARTS + 1) + body[33:])


@pytest.mark.parametrize("count", [5000, 100_000], ids=["at once", "elsewhere"])
@pytest.mark.parametrize(
    "kind, at, part",
    [
        ("PNG", 33, chunk(b"aaAa", b"")),
        ("PNG", 33, chunk(b"IDAT", b"")),
        ("JPEG", 2, b"\xff\xee\x00\x02"),
        ("JPEG", 2, b"\xff\xfe\x00\x02"),
        ("JPEG", 2, b"\xff"),
        ("GIF", 13, b"\x21\x01\x01a\x00"),
    ],
    ids=["chunks", "pieces of pixels", "markers", "comments", "filling", "extensions"],
)
def test_a_file_of_very_many_parts_is_refused_before_all_are_read(kind, at, part, count):
    """PIL reads them in Python, several microseconds each, while nothing else of the service runs."""
    body = encoded(Image.new("L", (8, 8)), kind)
    at += 3 * 2 ** ((body[10] & 7) + 1) if kind == "GIF" else 0  # its palette
    with pytest.raises(InputError, match="image is a file of too many parts, but must be of at most 1000 parts, and"):
        decoded(body[:at] + part * count + body[at:])


def test_a_bmp_that_pil_decodes_in_python_is_refused():
    """A row of one byte and an end costs a step for each pixel of its width."""
    rows = b"\1a\0\0" * 100
    header = struct.pack("<IiiHHIIiiII", 40, 600, 100, 1, 8, 1, len(rows), 0, 0, 256, 0)
    body = b"BM" + struct.pack("<IHHI", 1078 + len(rows), 0, 0, 1078) + header + bytes(1024) + rows
    with pytest.raises(InputError, match="image is a compressed BMP, but must be an uncompressed one"):
        decoded(body)


@pytest.mark.filterwarnings("error")
def test_of_the_exif_of_a_jpeg_the_orientation_alone_is_read():
    """It may have thousands of entries, each of which PIL reads in Python, and warns of in the log."""
    entries = [struct.pack("<HHII", number, 7, 60_000, 8) for number in range(1, 1001)]
    body = encoded(gradient("RGB"), "JPEG")
    for tagged, turned in (
        (b"", decoded(body)),
        (struct.pack("<HHIHH", 0x0112, 3, 1, 3, 0), decoded(body)[::-1, ::-1]),
    ):
        entries[0x0112] = tagged or entries[0x0112]
        exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 1000) + b"".join(entries) + bytes(4)
        marker = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
        seen = decoded(body[:2] + marker + body[20:])  # without JFIF's own resolution
        assert np.abs(seen.astype(int) - turned).max() <= 1  # a resize of the turned picture rounds the other way


async def test_an_image_that_needs_more_memory_than_is_allowed_is_refused_and_the_next_is_decoded(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(decoders, "SECONDS", 60.0)
    large = Decoders(400_000_000)
    with pytest.raises(InputError, match=r"image is (not readable|too much work)"):
        await large.decode(encoded(Image.new("RGB", (10_000, 10_000))), 16, 60.0)
    assert (await large.decode(encoded(gradient("RGB").resize((2000, 2000))), 16, 60.0)).shape == (16, 16, 3)


async def test_an_image_that_takes_too_long_is_given_up_and_the_next_is_decoded(monkeypatch):
    monkeypatch.setattr(decoders, "SECONDS", 60.0)
    large, body = Decoders(10**7), encoded(gradient("RGB").resize((2500, 2500)))
    await large.decode(body, 16, 60.0)
    former = large._process.pid
    monkeypatch.setattr(decoders, "SECONDS", 0.001)
    with pytest.raises(InputError, match="image is too much work to decode, but must be decoded within"):
        await large.decode(body, 16, 60.0)
    monkeypatch.setattr(decoders, "SECONDS", 60.0)
    with pytest.raises(TimeoutError):  # the deadline
        await large.decode(body, 16, 0.001)
    await large.decode(body, 16, 60.0)
    assert large._process.pid != former


async def test_an_image_that_would_wait_beyond_its_deadline_is_refused_at_once():
    release, begun = asyncio.Event(), []

    async def run(body: bytes, _size: int, _max_pixels: int):
        begun.append(body)
        await release.wait()

    queue = DecodeQueue(run, 2)
    queue._mean = 1.0
    waiting = [asyncio.create_task(queue.decode(bytes([number]), 16, 10, 10.0)) for number in range(6)]
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        queue.decode(b"late", 16, 10, 2.9).send(None)  # three rounds of a second are before it
    release.set()
    await asyncio.gather(*waiting, queue.decode(b"in time", 16, 10, 3.1))
    assert begun == [bytes([number]) for number in range(6)] + [b"in time"]


@pytest.mark.parametrize(
    ("size", "passes", "opened", "where"),
    [
        (64 * 1024, 256 * 256, "here", "here"),
        (64 * 1024, 256 * 256 + 1, "here", "processes"),
        (64 * 1024 + 1, 1, "thread", "processes"),
        (512 * 1024, 2_000_000, "thread", "processes"),
        (512 * 1024, 2_000_001, "thread", "process"),
        (512 * 1024 + 1, 1, "", "process"),
    ],
)
async def test_an_image_is_decoded_where_its_size_and_work_hold_nobody_up(size, passes, opened, where, monkeypatch):
    main_thread, places = threading.get_ident(), {}

    def note(step: str, value: object):
        def run(*_arguments):
            places[step] = "here" if threading.get_ident() == main_thread else "thread"
            return value

        return run

    async def in_process(body: bytes, size: int, max_pixels: int):
        places["decoded"] = "process"

    async def in_processes(body: bytes, size: int, max_pixels: int):
        places["decoded"] = "processes"

    monkeypatch.setattr(decoders, "pixel_passes", note("opened", passes))
    monkeypatch.setattr(decoders, "decode", note("decoded", None))
    service = Decoders(7)
    monkeypatch.setattr(service._large, "_run", in_process)
    monkeypatch.setattr(service._usual, "_run", in_processes)
    await service.decode(b"x" * size, 16, 60.0)
    assert places == {**({"opened": opened} if opened else {}), "decoded": where}


def test_as_many_pixels_as_are_allowed_are_decoded_and_not_one_more():
    body = encoded(Image.new("L", (10, 10)))
    assert pixel_passes(body, 100) == 100 and decode(body, 4, 100).shape == (4, 4, 3)
    for step in (lambda: pixel_passes(body, 99), lambda: decode(body, 4, 99)):
        with pytest.raises(InputError, match="image is of 10 x 10 = 100 pixels, but must be at most 99 pixels"):
            step()


def test_a_decompression_bomb_is_refused():
    with pytest.raises(InputError, match="image is far too large, but must be at most 1000000 pixels"):
        decoded(png_header(60_000, 60_000))


@pytest.mark.parametrize(
    "body", [b"", b"text", b"%!PS-Adobe-3.0 EPSF-3.0\n", encoded(gradient("RGB"))[:500], png_header(9, 9), b"\x00" * 99]
)
def test_what_is_no_whole_image_is_refused(body):
    with pytest.raises(InputError, match="image is not readable, but must be a whole image in one of the formats PNG"):
        decoded(body)
