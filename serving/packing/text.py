"""Turns tokens into text while they arrive: only complete characters, and nothing of a stop string.

Besides the texts of single tokens, for log-probabilities: their bytes, since a token can be part of a character only.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

CONTEXT = (
    6  # last tokens of the prompt that the first new ones are decoded with, to see whether a word begins with a space
)
UNFINISHED = 8  # tokens at most that may wait for the rest of a character
REPLACEMENT = "\ufffd"  # what a decoder shows for bytes that are not (yet) UTF-8


class Detokenizer:
    """Decodes tokens one by one. The bytes of an incomplete character wait for the rest."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(prompt[-CONTEXT:])  # the last decoded tokens, then those that wait
        self._decoded = len(self._window)
        self._before = self._decode(self._window)

    def put(self, token: int) -> str:
        """Take a token and return the text that is now complete."""
        self._window.append(token)
        text = self._decode(self._window)
        waits = len(self._window) - self._decoded < UNFINISHED
        if waits and (len(text) <= len(self._before) or text.endswith(REPLACEMENT)):
            return ""
        return self._complete(text)

    def end(self) -> str:
        """Return the remaining text, with replacement characters for incomplete ones."""
        return self._complete(self._decode(self._window)) if len(self._window) > self._decoded else ""

    def _complete(self, text: str) -> str:
        new = text[len(self._before) :]
        self._window = self._window[self._decoded :]
        self._decoded = len(self._window)
        self._before = self._decode(self._window)
        return new

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


class Writer:
    """The text of one output up to the first stop string, no part of which is given out."""

    def __init__(self, detokenizer: Detokenizer, stops: tuple[str, ...] = ()) -> None:
        self._detokenizer, self._stops = detokenizer, stops
        self._held = ""  # may be the beginning of a stop string
        self._ready: list[str] = []
        self.waiting = 0  # characters that `take` has not returned yet
        self.stopped = False

    def put(self, token: int, may_stop: bool = True) -> bool:
        """Take a token. Return whether it completes a stop string, after which nothing follows; never if it may not."""
        text = self._detokenizer.put(token)
        if may_stop:
            return self._add(text)
        self._give(text)
        return False

    def end(self) -> None:
        """End the text: what was held back is no stop string."""
        if not self.stopped and not self._add(self._detokenizer.end()):
            self._give(self._held)
            self._held = ""

    def take(self) -> str:
        """Return the text since the last call."""
        text = "".join(self._ready)
        self._ready.clear()
        self.waiting = 0
        return text

    def _add(self, text: str) -> bool:
        whole = self._held + text
        starts = [start for start in (whole.find(stop) for stop in self._stops) if start >= 0]
        if starts:
            self.stopped = True
            self._held, complete = "", whole[: min(starts)]
        else:
            kept = _begun(whole, self._stops)
            self._held, complete = whole[len(whole) - kept :], whole[: len(whole) - kept]
        self._give(complete)
        return self.stopped

    def _give(self, text: str) -> None:
        if text:
            self._ready.append(text)
            self.waiting += len(text)


def _begun(text: str, stops: tuple[str, ...]) -> int:
    """Return the largest number of characters at the end of `text` with which a stop string begins."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        end = text[-size:]
        if any(stop.startswith(end) for stop in stops):
            return size
    return 0


BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
CACHED = 1 << 15  # texts of tokens that are kept
SPACE = "\u2581"  # how sentencepiece writes a space


class TokenTexts:
    """The bytes of one tokenizer's tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.turn = asyncio.Lock()
        """Of the answers whose tokens are written: one at a time."""
        self.text_of = lru_cache(CACHED)(self._text_of)
        self._special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._added = {id: token.content for id, token in tokenizer.get_added_tokens_decoder().items()}
        kinds = set(_kinds(json.loads(tokenizer.to_str())["decoder"]))
        self._byte_level, self._pieces = "ByteLevel" in kinds, bool(kinds & {"ByteFallback", "Metaspace"})

    def bytes_of(self, token: int) -> bytes:
        """Return a token's bytes; those of its name for a special token, none for a token that has no text."""
        name = self._added.get(token) or self._tokenizer.id_to_token(token)
        if name is None:
            return b""
        if token in self._added:
            return name.encode()
        if self._byte_level:
            return b"".join(BYTES.get(character) or character.encode() for character in name)
        if not self._pieces:
            return self._tokenizer.decode([token]).encode()
        byte = BYTE.fullmatch(name)
        return bytes([int(byte[1], 16)]) if byte else name.replace(SPACE, " ").encode()

    def _text_of(self, token: int) -> str:
        """Return a token as text. Bytes that are no whole characters are shown as OpenAI does: bytes:\\xe2\\x80."""
        content = self.bytes_of(token)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)

    def is_special(self, token: int) -> bool:
        """Whether a token has no part in an output's text."""
        return token in self._special


def _kinds(decoder: Any) -> Iterator[str]:
    """Yield the types of a decoder of the tokenizers library and of its parts."""
    if isinstance(decoder, dict):
        yield decoder["type"]
        for part in decoder.get("decoders", ()):
            yield from _kinds(part)


def _bytes_by_character() -> dict[str, bytes]:
    """Return the bytes that byte-level tokenizers write as single characters (Radford et al., GPT-2, 2019).

    Printable bytes stand for themselves; the others, in order, are the characters from 256 on.
    """
    own = [*range(ord("!"), ord("~") + 1), *range(ord("\u00a1"), ord("\u00ac") + 1), *range(ord("\u00ae"), 256)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): bytes([byte]) for byte in own} | {chr(256 + at): bytes([byte]) for at, byte in enumerate(others)}


BYTES = _bytes_by_character()
