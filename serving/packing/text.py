"""From tokens to text while they come: whole characters alone, and nothing of a stop string.

Pure: tokens in, text out. Knows the tokenizers library; no requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

CONTEXT = 6  # tokens of the prompt that the first new ones are read after: whether a word begins with a space, say
UNFINISHED = 8  # tokens without a whole character at most: beyond, they are no character's bytes
REPLACEMENT = "\ufffd"  # what a decoder shows for bytes that are no UTF-8, or not yet


class Detokenizer:
    """The text of each token as soon as it is known: bytes of an unfinished character wait for the rest."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(prompt[-CONTEXT:])  # the last tokens that were shown, then those that wait
        self._shown = len(self._window)
        self._before = self._decode(self._window)

    def put(self, token: int) -> str:
        self._window.append(token)
        text = self._decode(self._window)
        waits = len(self._window) - self._shown < UNFINISHED
        if waits and (len(text) <= len(self._before) or text.endswith(REPLACEMENT)):
            return ""
        return self._show(text)

    def end(self) -> str:
        """What waits still, with replacement characters for unfinished ones."""
        return self._show(self._decode(self._window)) if len(self._window) > self._shown else ""

    def _show(self, text: str) -> str:
        new = text[len(self._before) :]
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        self._before = self._decode(self._window)
        return new

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


class Writer:
    """The text of one output up to the first stop string, of which no part is ever given out."""

    def __init__(self, detokenizer: Detokenizer, stops: tuple[str, ...] = ()) -> None:
        self._detokenizer, self._stops = detokenizer, stops
        self._held = ""  # may be the beginning of a stop string
        self._ready: list[str] = []
        self.waiting = 0  # characters that nobody took yet
        self.stopped = False

    def put(self, token: int) -> bool:
        """Whether a stop string is complete with this token; nothing comes after it."""
        return self._add(self._detokenizer.put(token))

    def end(self) -> None:
        """No more tokens come: what was held back was no stop string."""
        if not self.stopped and not self._add(self._detokenizer.end()):
            self._give(self._held)
            self._held = ""

    def take(self) -> str:
        """The text since the last time."""
        text = "".join(self._ready)
        self._ready.clear()
        self.waiting = 0
        return text

    def _add(self, text: str) -> bool:
        whole = self._held + text
        found = [at for at in (whole.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            self._held, given = "", whole[: min(found)]
        else:
            kept = _begun(whole, self._stops)
            self._held, given = whole[len(whole) - kept :], whole[: len(whole) - kept]
        self._give(given)
        return self.stopped

    def _give(self, text: str) -> None:
        if text:
            self._ready.append(text)
            self.waiting += len(text)


def _begun(text: str, stops: tuple[str, ...]) -> int:
    """Characters at the end of `text` with which one of the stop strings begins: the most of them."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        end = text[-size:]
        if any(stop.startswith(end) for stop in stops):
            return size
    return 0
