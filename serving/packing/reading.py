"""Turns a prompt (text, token ids or conversation) into the tokens that a generator continues.

Errors are those of OpenAI: a prompt that leaves no room for an output is `context_length_exceeded`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.chat import template_of
from pliant.packing.engine.grammar import Grammars
from pliant.packing.tools import ToolFormat
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing.catalog import ServedGenerator
from pliant.serving.packing.grammar import GrammarChecks
from pliant.serving.packing.request import PromptInput
from pliant.serving.packing.text import Detokenizer, TokenTexts, Writer

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

    def __init__(self, generator: ServedGenerator, context: int) -> None:
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
            return self._from_ids(prompt)
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

    def _from_ids(self, prompt: PromptInput) -> tuple[list[int], str]:
        if len(prompt.ids) >= self.context:
            raise self._too_long(prompt.name, f"{len(prompt.ids)} tokens")
        self.check_tokens(prompt.ids, prompt.name)
        ids = list(prompt.ids)
        return ids, self._tokenizer.decode(ids, skip_special_tokens=True)

    def _too_long(self, name: str, size: str) -> ApiError:
        message = f"{name} is {size}, but must be at most {self.context - 1} tokens, to leave one for the output"
        return ApiError(400, "context_length_exceeded", message, name)
