"""A service in virtual time that adds numbers: its champion is right, its challenger what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pliant.errors import RegistryError
from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import RolloutConfig
from pliant.rollout.measures import MEASURES
from pliant.serving.lifecycle.generation import Generation, Generations
from pliant.serving.loop.observe import Served
from pliant.serving.loop.trials import TrialParts, Trials
from pliant.serving.request_context import REQUEST_KEY, is_copy
from pliant.serving.state_file import StateFile
from tests.fixtures.observed import observed

CONFIG = RolloutConfig(
    shadow_share=0.5,
    shadow_requests=50,
    steps=(0.2, 1.0),
    step_requests=50,
    step_seconds=10.0,
    measures=MEASURES[:-1],
    guard_seconds=0.0,
)
"""Neither turns nor a guard."""
DEADLINE = 1.0  # seconds


async def inline(work, *arguments):
    """Run what would be run in a thread, which virtual time does not know of."""
    return work(*arguments)


class Driver:
    waiting, pending, ready, alive = 0, 0, True, True

    def __init__(self) -> None:
        self.stopped = False

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.stopped = True


@dataclass
class Answer:
    value: float
    number: int  # of the generation
    utility: float = 0.9

    @property
    def served(self) -> Served:
        """What a trial gets: the number stands for a class."""
        one = observed(str(self.value), self.utility, version=self.number, id=f"{self.number}-{self.value}")
        return Served(self, [one])


@dataclass
class Record:
    """The registry: release 1 is served; release 2 waits, if `waits`."""

    waits: bool = True
    down: bool = False
    marks: list[tuple[int, str, str]] = field(default_factory=list)
    promoted: list[int] = field(default_factory=list)

    def challenger(self) -> RegistryRelease | None:
        self._answer()
        done = bool(self.promoted) or any(state == "taken back" for _, state, _ in self.marks)
        return RegistryRelease("bins", 2, 1, {"m": 2}, {}) if self.waits and not done else None

    def champion(self) -> RegistryRelease | None:
        self._answer()
        number = 2 if self.promoted else 1
        return RegistryRelease("bins", number, number - 1 or None, {"m": number}, {})

    def unfinished(self) -> list[RegistryRelease]:
        self._answer()
        return []

    def mark(self, release, state, reason) -> None:
        self._answer()
        self.marks.append((release.number, state, reason))

    def promote(self, release, reason) -> None:
        self._answer()
        self.promoted.append(release.number)

    def former(self, release) -> RegistryRelease:
        return RegistryRelease("bins", release.number - 1, None, {"m": release.number - 1}, {})

    def undo(self, number, reason) -> None:
        self.mark(RegistryRelease("bins", number, None, {}, {}), "taken back", reason)
        self.promoted.clear()

    def _answer(self) -> None:
        if self.down:
            raise RegistryError("the registry does not answer")

    @property
    def states(self) -> list[str]:
        return [state for _, state, _ in self.marks]


class Service:
    """`add` is what clients call. `challenge(value, answer)` is what the challenger makes of a champion's answer."""

    tried = "release 2"

    def __init__(
        self, folder: Path, challenge: Callable[[float, Answer], Answer], record: Record | None = None
    ) -> None:
        self.record, self.challenge, self.folder = record or Record(), challenge, folder
        self.generations = Generations(Generation(1, f"release {self.record.champion().number}", {}, Driver()))
        self.starts, self.refreshes, self.events = 0, 0, []
        self.labelled = False
        """Whether each pair of answers gets a label, according to which the champion is right."""
        self.answered: list[tuple[float, int, bool]] = []  # value, generation, copy
        clock = asyncio.get_running_loop().time
        self.parts = TrialParts(
            record=self.record,
            generations=self.generations,
            load=lambda release: f"release {release.number}",
            start=self.start,
            refresh=self.refresh,
            clock=clock,
            config=CONFIG,
            file=StateFile(folder / "trial.json"),
            in_thread=inline,
            event=lambda kind, figures: self.events.append((kind, figures)),
        )
        self.trials = Trials(self.parts)
        self.task = asyncio.create_task(self.trials.run(30.0))

    async def start(self, catalog: str) -> Generation:
        self.starts += 1
        await asyncio.sleep(5)
        return Generation(1 + self.starts, catalog, {}, Driver())

    async def refresh(self) -> None:
        self.refreshes += 1
        wanted = f"release {self.record.champion().number}"
        if self.generations.present.catalog != wanted:
            loaded = self.generations.take_loaded(lambda catalog: catalog == wanted)
            self.generations.promote(loaded or await self.start(wanted))

    async def add(self, value: float, key: str) -> Answer:
        REQUEST_KEY.set(key)

        async def call(arrived: float) -> Served:
            number, catalog = self.generations.chosen.number, self.generations.chosen.catalog
            await asyncio.sleep(0.02)
            answer = Answer(value, number)
            if catalog == self.tried:
                answer = self.challenge(value, replace(answer))
            self.answered.append((value, number, is_copy()))
            return answer.served

        trial, now = self.trials.trial, asyncio.get_running_loop().time()
        return (await (call(now) if trial is None else trial.answer(call, now, DEADLINE))).answer

    async def load(self, count: int, start: int = 0) -> list[Answer]:
        """Send requests, ten a second, one after the other."""
        answers = []
        for value in range(start, start + count):
            answers.append(await asyncio.create_task(self.add(float(value), f"key {value}")))
            await asyncio.sleep(0.08)
            if self.labelled and self.trials.trial is not None:
                for id, (right, *_) in tuple(self.trials.trial.pairs.latest.items()):
                    self.trials.trial.label(id, right)
        return answers

    async def to_canary(self) -> None:
        """Answer requests until the challenger has its share of them."""
        await self.load(140)
        await asyncio.sleep(12)
        await self.load(10, 140)
        await asyncio.sleep(8)
        assert self.trials.to_dict()["stage"] == "canary"

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.trials.stop()
        await self.generations.stop()


@asynccontextmanager
async def serving(folder: Path, challenge: Callable[[float, Answer], Answer]) -> AsyncIterator[Service]:
    service = Service(folder, challenge)
    await asyncio.sleep(6)
    try:
        yield service
    finally:
        await service.stop()
