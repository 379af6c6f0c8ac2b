"""One output on its way: its tokens, its text, and how it ended. Knows no engine, no HTTP and no clock of its own.

It is told of every iteration's progress, and says itself where it ends: at a stop string, or where nobody takes its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pliant.packing.engine.submission import Progress, Submission
from serving.packing.text import Writer

OPEN_CHARACTERS = 64 * 1024  # of text that nobody takes, before the output is cancelled


@dataclass(slots=True, eq=False)
class InFlightOutput:
    """`finish`: "stop", "length", "cancelled", "late", "failed", or "slow": nobody took its text. Empty: on its way."""

    first: Submission
    writer: Writer
    ends: frozenset[int]  # tokens that end an output, and are no text
    news: Callable[[InFlightOutput], None]
    most_open: float = OPEN_CHARACTERS  # infinite for who wants the whole at once
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    fault: str = ""  # why it failed
    by_string: bool = False  # ended at a stop string
    queued: float = 0.0
    preemptions: int = 0
    recomputed: int = 0
    crashes: int = 0

    @property
    def id(self) -> int:
        return self.first.prompt.id

    @property
    def begun(self) -> bool:
        return bool(self.tokens) or bool(self.finish)

    def submission(self) -> Submission:
        """What an engine needs to go on from here."""
        ids = (*self.first.ids, *self.tokens)
        return replace(self.first, ids=ids, made=len(self.tokens))

    def take(self, progress: Progress) -> None:
        """One iteration's news. What comes after its end is passed over."""
        if self.finish:
            return
        self.queued, self.preemptions, self.recomputed = progress.queued, progress.preemptions, progress.recomputed
        finish = self._read(progress.tokens) or progress.finished
        if finish:
            self.end(finish)
        elif progress.tokens:
            self.news(self)

    def end(self, finish: str, fault: str = "") -> None:
        if self.finish:
            return
        self.writer.end()
        self.finish, self.fault = finish, fault
        self.news(self)

    def _read(self, tokens: tuple[int, ...]) -> str:
        """How the output ends with one of the tokens, by itself."""
        for token in tokens:
            self.tokens.append(token)
            if token not in self.ends and self.writer.put(token):
                self.by_string = True
                return "stop"
        return "slow" if self.writer.waiting > self.most_open else ""
