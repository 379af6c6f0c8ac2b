"""Writes the log-probabilities of tokens in the two shapes of OpenAI's API: of completions and of chats.

There may be a hundred thousand numbers in an answer. They are written in pieces of a few milliseconds, of one answer at a
time, between which the event loop serves everybody else.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from pliant.packing.engine.logprobs import TokenLogprobs, piece_tokens
from pliant.serving.packing.engine.in_flight import InFlightOutput
from pliant.serving.packing.token_texts import TokenTexts

LOWEST = -9999.0  # instead of minus infinity, which JSON cannot hold; vLLM writes the same

Entry = tuple[int, TokenLogprobs | None]
"""A token with its log-probabilities; None for the first of a prompt, which nothing comes before."""


class LogprobsWriter:
    """The log-probabilities of one choice, in parts as they become known. `prompt`: tokens that are repeated first."""

    def __init__(self, texts: TokenTexts, output: InFlightOutput, prompt: Sequence[int], chat: bool) -> None:
        self._texts, self._output, self._chat = texts, output, chat
        self._prompt = self._of_prompt(prompt)
        self._size = piece_tokens(output.first.sampling.logprobs)
        self._written = 0  # of the output's tokens
        self._offset = 0  # characters before the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def turn(self) -> asyncio.Lock:
        """What an answer holds while it is written, one at a time."""
        return self._texts.turn

    def _of_prompt(self, prompt: Sequence[int]) -> Iterator[Entry]:
        known: Iterable[TokenLogprobs | None] = chain([None], self._output.prompt_logprobs) if prompt else ()
        yield from zip(prompt, known, strict=True)

    def take_prompt(self) -> dict[str, Any] | None:
        """Return the next piece of those of the prompt, if it is repeated; None if there is no more."""
        entries = list(islice(self._prompt, self._size))
        return self._shaped(entries) if entries else None

    def take(self) -> dict[str, Any] | None:
        """Return those of the output's tokens since the last call; None if there are none."""
        entries = self._entries(self._written, None)
        self._written += len(entries)
        return self._shaped(entries) if entries else None

    async def written(self) -> str:
        """Return those of the prompt and of the whole output, as JSON."""
        columns: dict[str, list[str]] = {name: [] for name in self._shaped([]) if name != "refusal"}
        for part in self._pieces():
            for name, items in columns.items():
                items += [json.dumps(part[name])[1:-1]] if part[name] else []
            await asyncio.sleep(0)
        lists = [f'"{name}": [{", ".join(items)}]' for name, items in columns.items()]
        return "{" + ", ".join([*lists, *(['"refusal": null'] if self._chat else [])]) + "}"

    def _pieces(self) -> Iterator[dict[str, Any]]:
        while (part := self.take_prompt()) is not None:
            yield part
        for begin in range(0, len(self._output.tokens), self._size):
            yield self._shaped(self._entries(begin, begin + self._size))

    def _entries(self, begin: int, end: int | None) -> list[Entry]:
        return list(zip(self._output.tokens[begin:end], self._output.logprobs[begin:end], strict=True))

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
