"""Prompts as tokens, and tokens as text: what a generator's tokenizer and chat template make of a request.

A prompt is a text, token ids or a conversation; one that leaves no room for an output is `context_length_exceeded`, as
OpenAI says it. An output's tokens become text while they arrive: only complete characters, and nothing of a stop string.
Log-probabilities have texts of single tokens: their bytes, since a token can be part of a character only.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.artifact import Generator
from pliant.packing.chat import ToolFormat, beginning, template_of
from pliant.packing.engine.grammar import Grammars
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing.grammar import GrammarChecks
from pliant.serving.packing.request import PromptInput

CONTEXT = 6  # last tokens of the prompt that the first new ones are decoded with: does a word begin with a space?
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
            kept = max((beginning(whole, stop) for stop in self._stops), default=0)
            self._held, complete = whole[len(whole) - kept :], whole[: len(whole) - kept]
        self._give(complete)
        return self.stopped

    def _give(self, text: str) -> None:
        if text:
            self._ready.append(text)
            self.waiting += len(text)


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


MIN_TOKEN_CHARACTERS = 64  # that the longest token is assumed to have at least


@dataclass(frozen=True, slots=True)
class Tokens:
    """A prompt as tokens. `text`: for the predictor, without special tokens; `echo`: the prompt as text."""

    ids: tuple[int, ...]
    text: str
    echo: str


class PromptReader:
    """Reads prompts for one generator; immutable.

    `context`: tokens of a prompt and its output, at most. `defaults`: of a request's fields that say how tokens are drawn,
    by the model's generation_config.json. Raises `ArtifactError` for an unusable tokenizer.
    """

    def __init__(self, generator: Generator, context: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(generator.tokenizer)
        except Exception as error:  # the library raises nothing narrower
            raise ArtifactError(f"the generator's tokenizer cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = json.loads(generator.config)
        self._vocabulary = int(config.get("vocab_size") or self._tokenizer.get_vocab_size())
        self.context = context
        self.defaults = {
            name: int(value) if name == "top_k" else value
            for name, value in generator.sampling.items()
            if name != "max_tokens"
        }
        self._most = int(generator.sampling.get("max_tokens", context))  # tokens of an output that names no limit
        self.texts = TokenTexts(self._tokenizer)
        self.grammars = GrammarChecks(Grammars(generator.tokenizer, self._vocabulary, generator.ends))
        longest = max(map(len, self._tokenizer.get_vocab()), default=0)
        self._max_characters = context * max(longest, MIN_TOKEN_CHARACTERS)
        self._template = template_of(generator, self._tokenizer)

    def read(self, prompt: PromptInput) -> Tokens:
        """Return the tokens of a prompt. Raises `InputError`, and `ApiError` for a prompt that is too long."""
        ids, echo = self._ids(prompt)
        if not ids:
            raise InputError(prompt.name, "no tokens", "at least one token")
        if len(ids) >= self.context:
            raise self._too_long(prompt.name, f"{len(ids)} tokens")
        return Tokens(tuple(ids), self._tokenizer.decode(ids, skip_special_tokens=True), echo)

    @property
    def tool_format(self) -> ToolFormat:
        """How the model writes calls of tools."""
        return self._template.tool_format

    def encode(self, prompt: PromptInput) -> Sequence[int]:
        """Return the tokens of a text or conversation of any length that the service takes. Raises as `read`."""
        return self._ids(prompt)[0]

    def decode(self, ids: Sequence[int], name: str) -> str:
        """Return the text of tokens, special ones included. Raises `InputError` for one outside the vocabulary."""
        self.check_tokens(ids, name)
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def check_tokens(self, ids: Iterable[int], name: str) -> None:
        """Raise `InputError` for a token outside the vocabulary."""
        outside = next((id for id in ids if not 0 <= id < self._vocabulary), None)
        if outside is not None:
            raise InputError(name, f"with the token {outside}", f"of tokens from 0 to {self._vocabulary - 1}")

    def writer(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Writer:
        """Return the writer of an output that continues the prompt and ends at a stop string."""
        return Writer(Detokenizer(self._tokenizer, prompt), stops)

    def max_new_tokens(self, tokens: Tokens, max_new_tokens: int | None, name: str) -> int:
        """Return how many tokens the output may have. Raises `ApiError` if more are requested than the context leaves."""
        room = self.context - len(tokens.ids)
        if max_new_tokens is not None and max_new_tokens > room:
            used = f"the prompt has {len(tokens.ids)} of {self.context} tokens"
            message = f"{name} is {max_new_tokens}, but must be at most {room}: {used}"
            raise ApiError(400, "context_length_exceeded", message, name)
        return min(room, self._most) if max_new_tokens is None else max_new_tokens

    def _ids(self, prompt: PromptInput) -> tuple[list[int], str]:
        if prompt.ids:
            if len(prompt.ids) >= self.context:
                raise self._too_long(prompt.name, f"{len(prompt.ids)} tokens")
            self.check_tokens(prompt.ids, prompt.name)
            ids = list(prompt.ids)
            return ids, self._tokenizer.decode(ids, skip_special_tokens=True)
        text = prompt.text
        if prompt.messages:
            text = self._template.render(prompt.messages, prompt.template, prompt.tools)
        if len(text) > self._max_characters:
            raise self._too_long(prompt.name, f"{len(text)} characters")
        own = bool(prompt.messages) and self._template.given  # the template adds special tokens itself
        special = not own if prompt.special is None else prompt.special
        ids = self._tokenizer.encode(text, add_special_tokens=special).ids
        self.check_tokens(ids, prompt.name)
        return ids, text

    def _too_long(self, name: str, size: str) -> ApiError:
        message = f"{name} is {size}, but must be at most {self.context - 1} tokens, to leave one for the output"
        return ApiError(400, "context_length_exceeded", message, name)
