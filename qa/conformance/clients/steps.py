"""What the clients of this folder have in common: arguments, JSON over HTTP, pictures, and steps with a line of JSON each.

    python qa/conformance/clients/SCRIPT.py http://127.0.0.1:3000 --client NAME [--model NAME --tokenizer FOLDER ...]

runs in an environment with a client's pinned requirements (qa/conformance/run.py) and nothing of Pliant, so a script imports
this module as a sibling. Each step prints client, version, what it did, ok and detail; ok is null for a step that is left
out. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

Step = Callable[[], object]
"""It returns details, and raises if something is wrong."""
WORDS = ("client", "system", "model", "tokenizer", "folder", "rows")
NUMBERS = {"items": 50, "requests": 8, "examples": 2000, "seed": 0}


def fetch(address: str, fields: object = None) -> Any:
    """Return the JSON answer of a GET or, with fields, of a POST."""
    body = None if fields is None else json.dumps(fields).encode()
    request = urllib.request.Request(address, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read())


def png(rows: Sequence[bytes]) -> bytes:
    """Return a picture as a file; each row has three bytes a pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def record(**properties: object) -> dict[str, object]:
    """Return the JSON schema of an object with these properties and no others."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def tool(name: str, description: str, **arguments: object) -> dict[str, object]:
    """Return a tool as OpenAI's interface has it, by the schemas of its arguments."""
    function = {"name": name, "description": description, "parameters": record(**arguments)}
    return {"type": "function", "function": function}


def run(make: Callable[[argparse.Namespace], Mapping[str, Step]], left_out: Mapping[str, str] = {}) -> None:
    """Take the steps that `make` gives for what a script was called with, and exit.

    `left_out`: steps that are not taken, with the reason.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("url", type=lambda url: url.rstrip("/"))
    for name in WORDS:
        parser.add_argument(f"--{name}", default="")
    for name, default in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    failed = False
    for what, step in {**make(given), **dict.fromkeys(left_out)}.items():
        try:
            ok, detail = (True, step()) if step else (None, left_out[what])
        except Exception as error:
            ok, detail, failed = False, f"{type(error).__name__}: {error}", True
        line = {"client": given.client, "version": version(given.client.partition("[")[0]), "did": what, "ok": ok}
        sys.stdout.write(json.dumps({**line, "detail": str(detail)}, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    raise SystemExit(int(failed))
