"""Writes the log-probabilities of tokens in the two shapes of OpenAI's API: of completions and of chats."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from pliant.packing.engine.logprobs import TokenLogprobs
from serving.packing.engine.in_flight import InFlightOutput
from serving.packing.token_texts import TokenTexts

LOWEST = -9999.0  # instead of minus infinity, which JSON cannot hold; vLLM writes the same

Entry = tuple[int, TokenLogprobs | None]
"""A token with its log-probabilities; None for the first of a prompt, which nothing comes before."""


class LogprobsWriter:
    """The log-probabilities of one choice, in parts as they become known. `prompt`: tokens that are repeated first."""

    def __init__(self, texts: TokenTexts, output: InFlightOutput, prompt: Sequence[int], chat: bool) -> None:
        self._texts, self._output, self._prompt, self._chat = texts, output, prompt, chat
        self._written = 0  # of the output's tokens
        self._offset = 0  # characters before the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def take_prompt(self) -> dict[str, Any] | None:
        """Return those of the prompt, if it is repeated."""
        prompt, self._prompt = self._prompt, ()
        known = [None, *self._output.prompt_logprobs]
        return self._shaped(list(zip(prompt, known, strict=True))) if prompt else None

    def take(self) -> dict[str, Any] | None:
        """Return those of the output's tokens since the last call; None if there are none."""
        entries = list(zip(self._output.tokens, self._output.logprobs, strict=True))[self._written :]
        self._written += len(entries)
        return self._shaped(entries) if entries else None

    def whole(self) -> dict[str, Any]:
        """Return those of the prompt and of the whole output."""
        parts = [part for part in (self.take_prompt(), self.take()) if part is not None] or [self._shaped([])]
        if self._chat:  # never repeats its prompt
            return parts[0]
        return {name: [each for part in parts for each in part[name]] for name in parts[0]}

    def _shaped(self, entries: Sequence[Entry]) -> dict[str, Any]:
        return self._of_chat(entries) if self._chat else self._of_completion(entries)

    def _of_completion(self, entries: Sequence[Entry]) -> dict[str, Any]:
        text_of = self._texts.text_of
        return {
            "tokens": [text_of(token) for token, _ in entries],
            "token_logprobs": [known and finite(known.logprob) for _, known in entries],
            "top_logprobs": [
                known and {text_of(id): finite(logprob) for id, logprob in (*known.top, (token, known.logprob))}
                for token, known in entries
            ],
            "text_offset": [self._pass(token) for token, _ in entries],
        }

    def _of_chat(self, entries: Sequence[Entry]) -> dict[str, Any]:
        content = [
            {**self._token(token, known.logprob), "top_logprobs": [self._token(*each) for each in known.top]}
            for token, known in entries
            if known is not None
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self._texts.text_of(token),
            "logprob": finite(logprob),
            "bytes": list(self._texts.bytes_of(token)),
        }

    def _pass(self, token: int) -> int:
        """Return the characters of the text before a token, which ends up behind them."""
        offset = self._offset
        if not self._texts.is_special(token):
            self._offset += len(self._decoder.decode(self._texts.bytes_of(token)))
        return offset


def finite(logprob: float) -> float:
    return max(logprob, LOWEST)


def mean_logprob(logprobs: Iterable[TokenLogprobs]) -> float:
    """Return the mean log-probability of an output's tokens, by which `best_of` outputs are compared; 0 for none."""
    each = [finite(known.logprob) for known in logprobs]
    return sum(each) / len(each) if each else 0.0
