"""What the clients of this folder have in common: arguments, pictures, and steps with a line of JSON for each.

A script imports it as a sibling (`from steps import take_steps`), as it runs in an environment without Pliant.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

Step = Callable[[], object]
"""It returns details, and raises if something is wrong."""


def arguments(*names: str, **numbers: int) -> argparse.Namespace:
    """Return what a script was called with: the address, `--NAME VALUE` of each name, and numbers with their defaults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", type=lambda url: url.rstrip("/"))
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_known_args()[0]


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


def take_steps(client: str, steps: Mapping[str, Step], left_out: Mapping[str, str] = {}) -> int:
    """Take all steps, print what came of each, and return the exit status: 1 if a step failed.

    `client`: the name of its distribution. `left_out`: steps that are not taken, with the reason; their `ok` is null.
    """
    results: list[tuple[str, bool | None, object]] = []

    def note(what: str, ok: bool | None, detail: object) -> None:
        results.append((what, ok, detail))
        line = {"client": client, "version": version(client), "did": what, "ok": ok, "detail": str(detail)}
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    for what, step in steps.items():
        try:
            note(what, True, step())
        except Exception as error:
            note(what, False, f"{type(error).__name__}: {error}")
    for what, reason in left_out.items():
        note(what, None, reason)
    return int(any(ok is False for _, ok, _ in results))
