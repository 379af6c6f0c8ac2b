"""Pictures that are small to send and dear to decode, six at a time: what clients with small pictures notice.

Each picture gets an answer, a 4xx or a 503; which and after how long is printed.
"""

from __future__ import annotations

import http.client
import io
import json
import struct
import time
import zlib
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from qa.attacks.attackers import under_attack
from qa.targets import say
from qa.worlds import WORLDS

pytestmark = pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
TOKENS = WORLDS["tokens"]
AT_ONCE = 6
DEADLINE = 10.0  # seconds that an attacker gives his picture
WAIT = 120.0  # seconds that he waits for what becomes of it
BOUNDARY = "picture"
MANY = 9 * 1024 * 1024  # bytes: less than a body may have


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(name: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def small(kind: str) -> bytes:
    return encoded(Image.linear_gradient("L"), kind)


def scans(count: int, width: int, height: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated, so that it has `count` of them."""
    body = encoded(Image.new("L", (width, height), 128), "JPEG", progressive=True)
    last = body.rindex(b"\xff\xda")
    return body[:last] + body[last:-2] * (count - body.count(b"\xff\xda") + 1) + body[-2:]


def blank_png(width: int, height: int) -> bytes:
    """Return a blank picture of four channels, compressed a thousandfold."""
    packer, row = zlib.compressobj(9), bytes(4 * width + 1)
    rows = [packer.compress(row) for _ in range(height)]
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    pixels = b"".join([*rows, packer.flush()])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND")


def with_parts(kind: str, part: bytes, length: int = MANY) -> bytes:
    """Return a small picture with so many bytes of further parts behind its head."""
    body = small(kind)
    at = 33 if kind == "PNG" else 2
    return body[:at] + part * (length // len(part)) + body[at:]


def run_lengths() -> bytes:
    """Return a BMP whose rows are one pixel and an end, which PIL fills up in Python."""
    rows = b"\x01a\x00\x00" * 1400
    header = struct.pack("<IiiHHIIiiII", 40, 1400, 1400, 1, 8, 1, len(rows), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(rows), 0, 0, 1078) + header + bytes(1024) + rows


def exif() -> bytes:
    """Return a JPEG with an Exif of 5000 entries, and without the resolution for which it is read."""
    entries = b"".join(struct.pack("<HHII", number, 7, 60_000, 8) for number in range(1, 5001))
    content = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 5000) + entries + bytes(4)
    body = small("JPEG")
    return body[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + body[20:]


PICTURES = {
    "2000 scans": lambda: scans(2000, 4096, 4096),
    "100 scans": lambda: scans(100, 5000, 5000),  # as many scans and pixels as are taken
    "P3": lambda: b"P3\n1000 1000\n255\n" + b"9 " * (3 * 1000 * 1000),  # pixels as letters
    "16k blank png": lambda: blank_png(16384, 16384),  # a gigabyte
    "5k blank png": lambda: blank_png(5000, 5000),  # 97 kB, as many pixels as are taken
    "5k blank gif": lambda: encoded(Image.new("L", (5000, 5000)), "GIF"),
    "5k blank webp": lambda: encoded(Image.new("RGBA", (5000, 5000)), "WEBP", lossless=True),
    "16k blank webp": lambda: encoded(Image.new("RGB", (16383, 16383)), "WEBP", lossless=True, quality=0, method=0),
    "tiff": lambda: encoded(Image.new("RGB", (10_000, 10_000)), "TIFF", compression="tiff_adobe_deflate"),
    "half a picture": lambda: blank_png(5000, 5000)[:50_000],
    "markers": lambda: with_parts("JPEG", b"\xff\xee\x00\x02"),
    "filling": lambda: with_parts("JPEG", b"\xff"),
    "chunks": lambda: with_parts("PNG", chunk(b"aaAa")),
    "profiles": lambda: with_parts("PNG", chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**20 - 1), 9)), 60_000),
    "run lengths": run_lengths,
    "exif": exif,
}


def form(picture: bytes) -> bytes:
    """Return a multipart form that asks for the class of a picture."""
    fields = {"task": b"digits", "deadline": str(DEADLINE).encode()}
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n'
    parts = [(head % (name, "")).encode() + value for name, value in fields.items()]
    parts.append((head % ("image", '; filename="picture"')).encode() + picture)
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def send(url: str, body: str, outcomes: str) -> None:
    """Send the body that a file holds on several connections at once, and write what comes of each to another file."""
    content, kind = Path(body).read_bytes(), {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    address = url.removeprefix("http://")
    connections = [http.client.HTTPConnection(address, timeout=WAIT) for _ in range(AT_ONCE)]
    began = time.monotonic()
    for connection in connections:
        with suppress(OSError):
            connection.request("POST", TOKENS.path, content, kind)
    for connection in connections:
        try:
            response = connection.getresponse()
            answer = json.loads(response.read())
            outcome = f"{response.status} {answer['error']['code'] if 'error' in answer else 'answered'}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            outcome = f"0 {type(error).__name__}"
        with Path(outcomes).open("a") as file:
            file.write(f"{outcome} {time.monotonic() - began:.3f}\n")
        connection.close()
    time.sleep(0.1)


@pytest.mark.parametrize("kind", PICTURES)
def test_04_pictures_that_are_dear_to_decode(tokens, kind, tmp_path, targets):
    picture, body, outcomes = PICTURES[kind](), tmp_path / "body", tmp_path / "outcomes"
    body.write_bytes(form(picture))
    try:
        attack = partial(send, body=str(body), outcomes=str(outcomes))
        under_attack(targets, tokens, TOKENS.request, [attack], seconds=6.0, rounds=3)
    finally:
        lines = [line.split() for line in outcomes.read_text().splitlines()] if outcomes.exists() else []
        counts = Counter(f"{status} {code}" for status, code, _ in lines)
        longest = max((float(seconds) for _, _, seconds in lines), default=0.0)
        say(f"{len(picture):,} bytes each, six at a time: {dict(counts)}, the last after {longest:.2f} s")
    targets.at_least("pictures sent", len(lines), AT_ONCE)
    undeclared = [line for line in lines if not (line[0] in ("200", "503") or line[0].startswith("4"))]
    targets.at_most("pictures with neither an answer nor a 4xx or 503", len(undeclared), 0)


def test_04_the_pictures_are_as_dear_as_they_should_be():
    """A picture that is no longer read at all would attack nothing."""
    many, blank = scans(2000, 4096, 4096), blank_png(5000, 5000)
    assert many.count(b"\xff\xda") == 2000 and len(many) < 200_000 and len(blank) < 100_000
    assert Image.open(io.BytesIO(many)).size == (4096, 4096)
    image = Image.open(io.BytesIO(blank))
    image.load()
    assert (image.mode, image.size) == ("RGBA", (5000, 5000))
