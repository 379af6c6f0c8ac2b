"""From a prompt, however it was given, to the tokens that a generator continues. Knows tokenizers; no models.

Raised are refusals as OpenAI has them: a prompt that leaves no room for an output is `context_length_exceeded`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.chat import ChatTemplate, special_tokens
from serving.http.api_errors import ApiError
from serving.packing.catalog import ServedGenerator
from serving.packing.question import Given
from serving.packing.text import Detokenizer, Writer

LEAST_CHARACTERS = 64  # that a token is taken to hold at most, should all in the vocabulary be shorter


@dataclass(frozen=True, slots=True)
class Tokens:
    """`text`: what the predictor reads, without special tokens; `echo`: what was given, as text."""

    ids: tuple[int, ...]
    text: str
    echo: str


class PromptReader:
    """Of one generator; immutable. `context`: tokens of a prompt and its output. Raises `ArtifactError`."""

    def __init__(self, generator: ServedGenerator, context: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(generator.tokenizer)
        except Exception as error:  # the library raises nothing narrower
            raise ArtifactError(f"the generator's tokenizer cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = json.loads(generator.config)
        self._vocabulary = int(config.get("vocab_size") or self._tokenizer.get_vocab_size())
        self._context = context
        longest = max(map(len, self._tokenizer.get_vocab()), default=0)
        self._most_characters = context * max(longest, LEAST_CHARACTERS)
        self._template = ChatTemplate(generator.chat_template, special_tokens(config, self._tokenizer))

    def read(self, given: Given) -> Tokens:
        """Raises `InputError` and `ApiError`."""
        ids, echo = self._ids(given)
        if not ids:
            raise InputError(given.name, "no tokens", "at least one token")
        if len(ids) >= self._context:
            raise self._too_long(given.name, f"{len(ids)} tokens")
        return Tokens(tuple(ids), self._tokenizer.decode(ids, skip_special_tokens=True), echo)

    def writer(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Writer:
        """Of an output that continues the prompt."""
        return Writer(Detokenizer(self._tokenizer, prompt), stops)

    def most(self, tokens: Tokens, most: int | None, name: str) -> int:
        """New tokens at most. Raises `ApiError` for more than the context leaves."""
        room = self._context - len(tokens.ids)
        if most is not None and most > room:
            used = f"the prompt has {len(tokens.ids)} of {self._context} tokens"
            told = f"{name} is {most}, but must be at most {room}: {used}"
            raise ApiError(400, "context_length_exceeded", told, name)
        return room if most is None else most

    def _ids(self, given: Given) -> tuple[list[int], str]:
        if given.ids:
            return self._given(given)
        text = self._template.render(given.messages) if given.messages else given.text
        if len(text) > self._most_characters:
            raise self._too_long(given.name, f"{len(text)} characters")
        own = bool(given.messages) and self._template.given  # it sets the special tokens itself
        return self._tokenizer.encode(text, add_special_tokens=not own).ids, text

    def _given(self, given: Given) -> tuple[list[int], str]:
        outside = next((id for id in given.ids if not 0 <= id < self._vocabulary), None)
        if outside is not None:
            raise InputError(given.name, f"with the token {outside}", f"of tokens from 0 to {self._vocabulary - 1}")
        if len(given.ids) >= self._context:
            raise self._too_long(given.name, f"{len(given.ids)} tokens")
        ids = list(given.ids)
        return ids, self._tokenizer.decode(ids, skip_special_tokens=True)

    def _too_long(self, name: str, found: str) -> ApiError:
        told = f"{name} is {found}, but must be at most {self._context - 1} tokens, so that one is left for the output"
        return ApiError(400, "context_length_exceeded", told, name)
