"""The texts of single tokens, for log-probabilities: their bytes, since a token can be part of a character only."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

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
