"""A service that is killed at any write of a trial, into the registry or its own file, ends it the same after a restart."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pliant.errors import RegistryError
from pliant.registry import mlflow_switch as switching
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.loop import trial
from pliant.serving.loop.trials import ELSEWHERE, UNKNOWN, TrialRecord, Trials
from pliant.serving.state_file import StateFile
from tests.fixtures.fakes import run_virtually
from tests.fixtures.half_publishes import Client, Killed, Steps
from tests.fixtures.mlflow_client import Client as Memory
from tests.serving.loop.trial_service import CONFIG, Answer, Driver, Service

A, B = "pliant-bins-a", "pliant-bins-encoder-a"
QUICK = replace(CONFIG, shadow_requests=10, steps=(0.5, 1.0), step_requests=10, step_seconds=1.0, guard_seconds=60.0)
MOST_REQUESTS = 800


class File(StateFile):
    """A state file, each write of which is a step, too."""

    def __init__(self, path: Path, steps: Steps) -> None:
        super().__init__(path)
        self._steps = steps

    def write(self, content: dict[str, Any]) -> bool:
        self._steps.step("write the file")
        return super().write(content)

    def remove(self) -> None:
        self._steps.step("remove the file")
        super().remove()


@dataclass
class Place:
    """A registry in memory with a champion, release 2, and what waits or is tried, release 3; and the service's file."""

    folder: Path
    client: Memory
    registry: MlflowRegistry
    steps: Steps
    events: list[tuple[str, dict[str, Any]]]

    def service(self, challenge) -> Service:
        """Start a service; what its process did before is forgotten, but for the registry and the file."""
        service = Following(self.folder, challenge, TrialRecord(self.registry, "bins"))
        service.task.cancel()
        service.registry, service.events, service.labelled = self.registry, self.events, True
        file = File(self.folder / "trial.json", self.steps)
        event = lambda kind, figures: self.events.append((kind, dict(figures)))  # noqa: E731
        config = QUICK if challenge is not good else replace(QUICK, guard_seconds=2.0)
        service.parts = replace(service.parts, config=config, file=file, event=event)
        service.trials = Trials(service.parts)
        service.task = asyncio.create_task(service.trials.run(5.0))
        return service

    def end(self) -> dict[str, Any]:
        """Return what is left: aliases, states and reasons but for their figures, and whether there is a file."""
        releases = switching.history(self.registry, "bins")
        return {
            "aliases": switching.aliases(self.registry, "bins"),
            "models": self.registry.aliases("pliant-bins-"),
            "releases": [(each.number, each.versions, each.state, each.reason[:10]) for each in releases],
            "file": (self.folder / "trial.json").exists(),
        }


class Following(Service):
    """A service that follows the registry."""

    registry: MlflowRegistry
    tried = "release 3"

    async def start(self, catalog: str) -> Generation:
        self.starts += 1
        await asyncio.sleep(0.1)
        return Generation(1 + self.starts, catalog, {}, Driver())

    async def live(self, decided) -> None:
        """Answer requests until `decided` or this process is killed."""
        value = 0
        with suppress(Killed):
            while not (self.task.done() or decided()):
                await self.load(1, value)
                value += 1
                assert value < MOST_REQUESTS, "it is never decided"
            await asyncio.sleep(0)
            if self.task.done():
                await self.task
        self.task.cancel()  # of a killed process nothing goes on


@contextmanager
def place(folder: Path, state: str = "waiting"):
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        client, steps = Memory(), Steps()
        client.add(A, 3, champion="1")
        client.add(B, 3, champion="1")

        @contextmanager
        def locked(_registry, _system):
            yield lambda: None

        # Arms and copies follow from ids and secret: they are the same in every life, and so is the number of writes.
        numbers = count()
        patch.setattr(trial, "uuid4", lambda: UUID(int=next(numbers)))
        patch.setattr(trial, "token_hex", lambda _bytes: "secret")
        patch.setattr(MlflowRegistry, "connect", lambda self, create=False: client)
        patch.setattr(MlflowRegistry, "locked", locked)
        patch.setattr(MlflowRegistry, "intact", lambda self, published: True)
        registry = MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))
        registry.commit({A: 1, B: 1})
        registry.commit({A: 2})
        registry.propose({A: 3, B: 2}, None, state, "it passed the gate", "")
        there = Place(folder, client, registry, steps, [])
        # Looked up at each call, so that a test may begin another count of steps.
        patch.setattr(MlflowRegistry, "connect", lambda self, create=False: Client(client, there.steps))
        yield there


def good(_value: float, answer: Answer) -> Answer:
    return answer


def worse(_value: float, answer: Answer) -> Answer:
    answer.value += 1
    return answer


class Decaying:
    """Is right until it is promoted."""

    def __init__(self, there: Place) -> None:
        self.there = there

    def __call__(self, value: float, answer: Answer) -> Answer:
        return (worse if self.there.registry.release("bins").number == 3 else good)(value, answer)


def until_decided(there: Place):
    def decided() -> bool:
        third = there.registry.release("bins", 3)
        named = switching.aliases(there.registry, "bins")
        return third.state in ("", "taken back") and not {"shadow", "canary"} & set(named) and not there.end()["file"]

    return decided


def tried(folder: Path, given, kill: int | None) -> tuple[dict[str, Any], list[str], list[str]]:
    """Try a challenger in a service that is killed at a step, and then in one that is not."""
    with place(folder) as there:
        there.steps = Steps(kill)

        async def lives() -> None:
            decided = until_decided(there)
            challenge = Decaying(there) if given is Decaying else given
            await there.service(challenge).live(decided)
            names = there.steps.names
            if kill is not None:
                assert there.steps.dead, "it was never killed"
                served = there.registry.release("bins")
                assert served.number in (2, 3) and all(there.registry.version(n, v) for n, v in served.versions.items())
                there.steps = Steps()
                await there.service(challenge).live(decided)
            there.names = names

        run_virtually(lives())
        return there.end(), there.names, [kind for kind, _ in there.events]


@pytest.mark.parametrize(
    "challenge, state, event",
    [
        pytest.param(good, "", "champion", marks=pytest.mark.slow),
        (worse, "taken back", "rollback"),
        pytest.param(Decaying, "taken back", "rollback", marks=pytest.mark.slow),
    ],
)
def test_a_service_killed_at_any_write_of_a_trial_ends_it_the_same_after_a_restart(challenge, state, event, tmp_path):
    wanted, names, events = tried(tmp_path / "whole", challenge, None)
    assert {number: kept for number, _, kept, _ in wanted["releases"]}[3] == state
    assert wanted["aliases"]["champion"] == (3 if state == "" else 2) and not wanted["file"]
    assert len(names) > 10 and event in events[-2:]
    for kill, name in enumerate(names):
        end, _, events = tried(tmp_path / str(kill), challenge, kill)
        assert end == wanted, f"killed before {name}, step {kill} of {names}"
        assert event in events, f"nobody hears of it: killed before {name}, step {kill}"


@pytest.mark.virtual
async def test_one_that_somebody_else_promotes_meanwhile_is_champion_and_not_taken_back(tmp_path):
    with place(tmp_path / "place") as there:
        service = there.service(good)
        await asyncio.sleep(1)
        assert service.trials.to_dict()["stage"] == "shadow"
        switching.switch(there.registry, "bins", 3, "by hand")
        await asyncio.sleep(20)
        assert service.trials.to_dict() is None and service.generations.present.catalog == "release 3"
        await service.stop()
        third = there.registry.release("bins")
        assert (third.number, third.state, third.reason) == (3, "", "by hand")
        assert there.registry.release("bins", 2).state == "left"
        assert ELSEWHERE not in str(there.end()) and "rollback" not in [kind for kind, _ in there.events]


@pytest.mark.parametrize("kill", range(15))
@pytest.mark.virtual
async def test_a_promotion_by_hand_that_is_killed_at_any_write_is_finished_by_the_next_service(kill, tmp_path):
    with place(tmp_path / "place") as there:
        there.steps = Steps(kill)
        with suppress(Killed):
            switching.switch(there.registry, "bins", 3, "by hand")
        killed, there.steps = there.steps.dead, Steps()
        served = there.registry.release("bins").number
        assert served == (3 if kill > 2 else 2)

        service = there.service(good)
        await asyncio.sleep(1)
        assert (service.trials.to_dict() is None) == (served == 3)
        await service.stop()
        if served == 3:
            assert there.end()["aliases"] == {"champion": 3, "previous": 2}
            assert there.end()["models"] == {A: 3, B: 2}
            states = {number: state for number, _, state, _ in there.end()["releases"]}
            assert states == {1: "left", 2: "left", 3: ""}
            reasons = {there.registry.release("bins", number).reason for number in (2, 3)}
            assert reasons <= {"by hand", UNKNOWN}
        assert killed == (kill < 14), "so many writes are all"


@pytest.mark.virtual
async def test_a_decision_that_the_registry_could_not_be_given_is_written_down_by_the_restarted_service(
    tmp_path, caplog
):
    with place(tmp_path / "place") as there:
        down = [False]

        def unless_down(work):
            def call(*arguments):
                if down[0]:
                    raise RegistryError("the registry does not answer")
                return work(*arguments)

            return call

        service = there.service(worse)
        for name in ("challenger", "champion", "unfinished", "mark", "promote"):
            object.__setattr__(service.parts.record, name, unless_down(getattr(service.parts.record, name)))
        await asyncio.sleep(1)
        down[0] = True
        await service.load(60)
        assert service.generations.challenger is None, "the decision holds at once"
        assert there.registry.release("bins", 3).state == "shadow" and there.end()["file"]
        await service.stop()
        again = there.service(worse)
        await asyncio.sleep(12)
        assert again.starts == 0 and not there.end()["file"]
        await again.stop()
        third = there.registry.release("bins", 3)
        assert third.state == "taken back" and "taken back in shadow after" in third.reason
        assert caplog.text.count("the registry does not answer") == 1
