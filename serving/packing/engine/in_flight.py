"""One output while it is generated: its tokens, its text, and how it ended.

It receives the progress of every iteration, and ends itself at a stop string, or if nobody reads its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import nan

from pliant.packing.engine.logprobs import PackedLogprobs, TokenLogprobs
from pliant.packing.engine.submission import Progress, Submission
from pliant.packing.scheduling.forecast import MEDIAN
from pliant.serving.packing.text import Writer

OPEN_CHARACTERS = 64 * 1024  # of text that nobody has read, after which the output is cancelled


@dataclass(slots=True, eq=False)
class InFlightOutput:
    """An output.

    `finish`: "stop", "length", "cancelled", "late", "full" (another tenant's took its place in the queue), "failed" or
    "slow" (nobody read its text) or "grammar" (its grammar became too complex to go on); empty: not ended.
    """

    first: Submission
    writer: Writer
    ends: frozenset[int]  # tokens that end an output and have no text
    on_progress: Callable[[InFlightOutput], None]
    max_open: float = OPEN_CHARACTERS  # characters of unread text; infinite if the answer is not a stream
    silent: bool = False  # only its prompt is asked about: the one token that an engine must generate is dropped
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of each token, where requested
    prompt_logprobs: tuple[TokenLogprobs, ...] | PackedLogprobs = ()  # of the prompt's from its second on, if requested
    finish: str = ""
    fault: str = ""  # why it failed, for the client
    at_stop_string: bool = False  # it ended there
    first_token_at: float = nan  # on the service's clock
    last_token_at: float = nan
    queued: float = 0.0  # seconds
    seconds: float = 0.0  # of the device
    preemptions: int = 0
    recomputed: int = 0  # tokens
    crashes: int = 0  # of the engine's process

    @property
    def id(self) -> int:
        return self.first.prompt.id

    @property
    def begun(self) -> bool:
        """Whether it has a token or has ended."""
        return bool(self.tokens) or bool(self.finish)

    @property
    def tokens_left(self) -> float:
        """Return the tokens that it is predicted to need still: of its prompt, if it has not begun, and of its text."""
        prompt = self.first.prompt
        reading = 0 if self.tokens else prompt.tokens
        return reading + max(prompt.forecast[MEDIAN] - len(self.tokens), 1.0)

    def submission(self) -> Submission:
        """Return what an engine needs to go on from the present tokens."""
        ids = (*self.first.ids, *self.tokens)
        return replace(self.first, ids=ids, generated=len(self.tokens))

    def take(self, progress: Progress) -> None:
        """Take the progress of one iteration. After the end it is ignored."""
        self.seconds += progress.seconds
        if self.finish:
            return
        self.queued, self.preemptions, self.recomputed = progress.queued, progress.preemptions, progress.recomputed
        self.prompt_logprobs = progress.prompt_logprobs or self.prompt_logprobs
        if self.silent:
            self._end_silently(progress)
            return
        self.logprobs += progress.logprobs
        finish = self._read(progress.tokens) or progress.finished
        del self.logprobs[len(self.tokens) :]  # of tokens behind a stop string
        if finish:
            self.end(finish)
        elif progress.tokens:
            self.on_progress(self)

    def end(self, finish: str, fault: str = "") -> None:
        """End the output, unless it has ended."""
        if self.finish:
            return
        self.writer.end()
        self.finish, self.fault = finish, fault
        self.on_progress(self)
        self.on_progress = _nothing  # it knows the reply, which knows this output: garbage collectors are slow

    def _end_silently(self, progress: Progress) -> None:
        """End with the first token, which is dropped."""
        if progress.tokens:
            self.end("length")
        elif progress.finished:
            self.end(progress.finished)

    def _read(self, tokens: tuple[int, ...]) -> str:
        """Take tokens. Return how the output ends with one of them; empty: it goes on."""
        for token in tokens:
            self.tokens.append(token)
            may_stop = len(self.tokens) > self.first.sampling.min_tokens
            if token not in self.ends and self.writer.put(token, may_stop):
                self.at_stop_string = True
                return "stop"
        return "slow" if self.writer.waiting > self.max_open else ""


def _nothing(_output: InFlightOutput) -> None:
    """What follows the end of an output."""
