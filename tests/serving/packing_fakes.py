"""A fake engine that needs no model: it writes a tale, token by token, and keeps books of pages as a real one does.

Greedy, every output is the tale; otherwise a token is a function of seed and position. As a worker it runs on the test's
own loop (`FakeWorker`), or as a build for a real process (`FakeBuild`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pliant.errors import InputError, WorkerError
from pliant.packing.request import Memory
from pliant.packing.submission import Progress, Status, Submission

TALE = "Once there was a small café. It sold tea; nobody came 🙂. THE END"
SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>")
MEMORY = Memory(pages=64, page_tokens=4)
REFUSED = 9  # a token with which the engine takes no prompt


def new_tokenizer() -> Tokenizer:
    """Byte-level, so that é and the face are tokens without a whole character; <|end|> is token 0."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = ["Once there was a small shop. It sold tea; nobody came. THE END"]
    told = {"vocab_size": 300, "special_tokens": list(SPECIAL), "initial_alphabet": sorted(alphabet)}
    trainer = trainers.BpeTrainer(**told, show_progress=False)
    made.train_from_iterator(texts * 4, trainer)
    return made


@dataclass
class FakeEngine:
    """One token a step for everything submitted; the room is for `MEMORY.sequences` at once."""

    deliver: Callable[[list[Progress]], None]
    ends_at: int = 0  # tokens after which a sampled output ends by itself; 0: at its limit
    submitted: dict[int, Submission] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    iterations: int = 0
    stopped: bool = False

    def __post_init__(self) -> None:
        self.tale = new_tokenizer().encode(TALE).ids

    def submit(self, submission: Submission) -> None:
        if submission.ids[:1] == (REFUSED,):
            raise InputError("ids", REFUSED, "another one first")
        self.submitted[submission.prompt.id] = submission
        self.made[submission.prompt.id] = submission.made

    def cancel(self, id: int) -> None:
        if self._forget(id) is not None:
            self.deliver([Progress(id, (), "cancelled", 0.0, 0, 0, 0)])

    def step(self) -> None:
        self.iterations += 1
        news = [self._one(submission) for submission in list(self.submitted.values())]
        if news:
            self.deliver(news)

    def status(self) -> Status:
        used = sum(MEMORY.need(one.prompt.tokens + self.made[id]) for id, one in self.submitted.items())
        running = len(self.submitted)
        return Status(not self.stopped, "", running, 0, MEMORY.pages, used, 0, self.iterations, 0, 0, 0, 0, 0.0, 0.0)

    def check(self) -> None:
        assert self.submitted.keys() == self.made.keys(), "pages of nobody"

    def stop(self) -> None:
        self.stopped = True

    def _one(self, submission: Submission) -> Progress:
        id = submission.prompt.id
        token = self._token(submission, self.made[id])
        self.made[id] += 1
        made = self.made[id]
        finished = "stop" if token == 0 else "length" if made >= submission.prompt.limit else ""
        if finished:
            self._forget(id)
        return Progress(id, (token,), finished, 0.25, 1, 3, made)

    def _token(self, submission: Submission, position: int) -> int:
        if submission.sampling.temperature == 0:
            return self.tale[position] if position < len(self.tale) else 0
        if self.ends_at and position + 1 >= self.ends_at:
            return 0
        return 10 + hash((submission.sampling.seed, position)) % 80  # printable ones

    def _forget(self, id: int) -> Submission | None:
        self.made.pop(id, None)
        return self.submitted.pop(id, None)


@dataclass(eq=False)
class FakeWorker:
    """An engine on the test's loop, a step every millisecond. `next_build` is asked as a process would."""

    next_build: Callable[[], Any]
    trouble: str = ""  # to start: a sentence
    held: bool = False  # takes what it is sent, but makes no step
    heard: Callable[[str, Any], None] = field(default=lambda _kind, _value: None)
    ended: Callable[[], None] = field(default=lambda: None)
    engine: FakeEngine | None = None
    builds: list[Any] = field(default_factory=list)
    sent: list[tuple[str, Any]] = field(default_factory=list)
    stopped: bool = False
    ends_at: int = 0
    running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self.trouble:
            raise WorkerError(self.trouble)
        self.builds.append(self.next_build())
        self.engine = FakeEngine(lambda news: self.heard("progress", news), self.ends_at)
        if self.running is None:
            self.running = asyncio.create_task(self._run())

    def send(self, verb: str, *arguments: Any) -> None:
        self.sent.append((verb, arguments))
        engine = self.engine
        if engine is None:
            return
        match verb:
            case "submit":
                try:
                    engine.submit(*arguments)
                except InputError as error:
                    self.heard("declined", (arguments[0].prompt.id, str(error)))
            case "cancel":
                engine.cancel(*arguments)
            case "look":
                engine.check()
                self.heard("looked", (*arguments, engine.status(), ""))

    def die(self) -> None:
        """As a process that is killed."""
        self.engine = None
        self.ended()

    def kill(self) -> None:
        self.die()

    async def stop(self) -> None:
        self.stopped, self.engine = True, None
        if self.running is not None:
            self.running.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            if self.engine is not None and not self.held:
                self.engine.step()


@dataclass(frozen=True)
class FakeBuild:
    """For a real process. `trouble`: refuse to build; or what happens after so many iterations: die or fail."""

    seconds: float = 0.002
    trouble: str = ""
    after: int = 0
    once: Path | None = None  # a file that remembers that the trouble was had

    def __call__(self, deliver: Callable[[list[Progress]], None]) -> Any:
        if self.trouble == "refuse":
            raise InputError("memory", 0, "at least 1")
        engine = _Locked(deliver)
        threading.Thread(target=self._run, args=(engine, deliver), daemon=True).start()
        return engine

    def _run(self, engine: _Locked, deliver: Callable[[list[Progress]], None]) -> None:
        while True:
            time.sleep(self.seconds)
            with engine.lock:
                ids = list(engine.submitted)
                engine.step()
                if self._strikes(engine.iterations, bool(ids)):
                    if self.trouble == "fail":
                        deliver([Progress(id, (), "failed", 0.0, 0, 0, 0) for id in ids])
                    time.sleep(1e6)

    def _strikes(self, iterations: int, busy: bool) -> bool:
        if not self.trouble or iterations < self.after or not busy or (self.once and self.once.exists()):
            return False
        if self.once:
            self.once.touch()
        return True


class _Locked(FakeEngine):
    """For two threads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lock = threading.RLock()

    def submit(self, submission: Submission) -> None:
        with self.lock:
            super().submit(submission)

    def cancel(self, id: int) -> None:
        with self.lock:
            super().cancel(id)
