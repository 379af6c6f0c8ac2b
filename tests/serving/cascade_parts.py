"""The cascade service without HTTP and processes: its real parts, with models that run in this process when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from pliant.errors import WorkerError
from serving.cascade_assembly import Assembly, assemble
from serving.cascade_payload import CascadeBuild
from serving.cascade_question import Question
from serving.settings import Settings
from tests.serving.cascade_published import SURE, UNSURE

QUIET = Settings(system="cascade", threads=1, refresh_seconds=0.0)


@dataclass(eq=False)
class Device:
    """A worker whose models run here, `seconds` a launch. `trouble` says what a launch of a model does instead, once."""

    build: CascadeBuild
    seconds: float = 0.01
    restart_seconds: float = 0.2
    refuses: str = ""  # to start
    trouble: dict[int, str] = field(default_factory=dict)  # by model: "die" or "hang"
    launches: list[tuple[int, int]] = field(default_factory=list)  # model and batch size
    restarts: int = 0
    stopped: bool = False
    ended: Callable[[], None] | None = None
    model: Any = None

    async def start(self) -> None:
        if self.refuses:
            raise WorkerError(self.refuses)
        self.model = self.build()

    async def restart(self) -> None:
        self.restarts += 1
        await asyncio.sleep(self.restart_seconds)
        await self.start()

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        self.launches.append((setting, len(payloads)))
        trouble = self.trouble.pop(setting, "")
        await asyncio.sleep(1e6 if trouble == "hang" else self.seconds)
        if trouble:
            raise WorkerError("the device process ended during run")
        return self.model.run(setting, payloads)[0], self.seconds

    def kill(self) -> None:
        self.model = None

    async def stop(self) -> None:
        self.stopped = True


class Service:
    """`hire` makes a `Device` for every worker of every generation; `hiring` may change it before it starts."""

    def __init__(self, registry: Any) -> None:
        self.registry, self.counted = registry, CollectorRegistry()
        self.devices: list[Device] = []
        self.hiring: Callable[[Device], None] = lambda device: None
        self.assembly: Assembly

    def hire(self, build: CascadeBuild) -> Device:
        self.devices.append(Device(build))
        self.hiring(self.devices[-1])
        return self.devices[-1]

    @property
    def endpoint(self):
        return self.assembly.endpoint

    @property
    def present(self):
        return self.assembly.generations.present

    async def ask(self, *texts: str, task: str = "colours", **told: Any) -> list[dict[str, Any]]:
        pairs = tuple((text, None) for text in texts or (SURE,))
        question = Question(task, pairs, **{"deadline": 10.0, **told})
        answer = await self.endpoint.predict(question, self.endpoint.now)
        assert answer["task"] == task
        return answer["answers"]

    def sample(self, name: str, **labels: str) -> float | None:
        return self.counted.get_sample_value(name, labels)


@asynccontextmanager
async def serving(registry: Any, settings: Settings = QUIET):
    service = Service(registry)
    service.assembly = await assemble(settings, registry, service.hire, service.counted)
    try:
        yield service
    finally:
        await service.assembly.stop()


__all__ = ["QUIET", "SURE", "UNSURE", "Device", "Service", "serving"]
