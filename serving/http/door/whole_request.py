"""Recognises a whole request in what one read gave, for a tenth of what parsing costs: enough to turn it away.

Only what any client library sends is recognised; all else is left to the parser. As these bytes are exactly one request
by its one `content-length`, a proxy in between sees the same end of it.
"""

from __future__ import annotations

from functools import lru_cache

PARSED = (b"transfer-encoding", b"expect:", b"upgrade:")  # in a head that is left to the parser
LENGTH, CONNECTION, KEPT = b"\r\ncontent-length: ", b"\r\nconnection:", b"\r\nconnection: keep-alive\r\n"
DIGITS = 12
HEADS = 256  # that are remembered: a client repeats its own, byte for byte, with bodies of one length


def path_of_post(data: bytes | memoryview, most_head: int) -> str | None:
    """Return the path of a POST on a connection that is kept, if `data` is just that; None if it is anything else.

    `most_head`: the bytes of its head, at most.
    """
    begin = bytes(data[:most_head])
    end = begin.find(b"\r\n\r\n")
    if end < 0:
        return None
    path, length = _path_and_length(begin[: end + 2])
    return path if len(data) == end + 4 + length else None


@lru_cache(HEADS)
def _path_and_length(head: bytes) -> tuple[str | None, int]:
    """Return the path of a POST with this head, and the bytes of its body; no path if it is anything else."""
    lower = head.lower()
    if not head.startswith(b"POST /") or any(word in lower for word in PARSED):
        return None, 0
    before, _, rest = lower.partition(LENGTH)
    length = rest[: rest.find(b"\r\n")]
    if b"content-length" in before or b"content-length" in rest or not length.isdigit() or len(length) > DIGITS:
        return None, 0
    line = head[: head.find(b"\r\n")].split(b" ")
    if len(line) != 3 or line[2] != b"HTTP/1.1" or not line[1].isascii() or b"%" in line[1]:
        return None, 0
    if CONNECTION in lower and KEPT not in lower:
        return None, 0
    return line[1].partition(b"?")[0].decode(), int(length)
