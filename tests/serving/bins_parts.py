"""The bins service without processes: its real parts, with runtimes that run in this process when told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from pliant.errors import WorkerError
from serving.bins_api import create_app
from serving.bins_assembly import Assembly, assemble
from serving.bins_payload import BinsBuild
from serving.settings import Settings

QUIET = Settings(system="bins", threads=1, refresh_seconds=0.0, max_body_bytes=2_000_000, max_texts=8)


@dataclass(eq=False)
class Device:
    """A worker whose runtimes run here, `seconds` a launch. `trouble` says what the next launch does instead."""

    build: BinsBuild
    seconds: float = 0.0
    refuses: str = ""  # to start
    trouble: str = ""  # "die" or "hang"
    launches: list[tuple[int, list[int]]] = field(default_factory=list)  # setting and lengths
    loads: list[int] = field(default_factory=list)
    stopped: bool = False
    ended: Callable[[], None] | None = None
    model: Any = None

    async def start(self) -> None:
        if self.refuses:
            raise WorkerError(self.refuses)
        self.model = self.build()

    async def restart(self) -> None:
        await self.start()

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        self.launches.append((setting, [len(ids) for ids, _ in payloads]))
        trouble, self.trouble = self.trouble, ""
        await asyncio.sleep(1e6 if trouble == "hang" else self.seconds)
        if trouble:
            raise WorkerError("the device process ended during run")
        return self.model.run(setting, payloads)

    async def load(self, number: int) -> float:
        self.loads.append(number)
        self.model.load(number)
        return 0.001

    def kill(self) -> None:
        self.model = None

    async def stop(self) -> None:
        self.stopped = True


class Service:
    """The app over its real endpoint. All of it lives on one loop, which runs while `call` or `wait` does."""

    def __init__(self, registry: Any, settings: Settings) -> None:
        self.registry, self.counted = registry, CollectorRegistry()
        self.devices: list[Device] = []
        self.hiring: Callable[[Device], None] = lambda device: None
        self.loop = asyncio.new_event_loop()
        self.assembly: Assembly = self.wait(assemble(settings, registry, self._hire, self.counted))
        self.app = create_app(Path(__file__).parent)
        self.app.state.endpoint = self.endpoint

    def wait(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    @property
    def endpoint(self):
        return self.assembly.endpoint

    @property
    def present(self):
        return self.assembly.generations.present

    def call(self, method: str, path: str, content: bytes | None = None, **headers: str) -> httpx.Response:
        return self.wait(self.calling(method, path, content, **headers))

    async def calling(self, method: str, path: str, content: bytes | None = None, **headers: str) -> httpx.Response:
        told = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, content=content, headers=told)

    def post(self, path: str, value: object, **headers: str) -> httpx.Response:
        return self.call("POST", path, json.dumps(value).encode(), **headers)

    async def posting(self, path: str, value: object, **headers: str) -> httpx.Response:
        return await self.calling("POST", path, json.dumps(value).encode(), **headers)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.counted.get_sample_value(name, labels)

    def _hire(self, build: BinsBuild) -> Device:
        self.devices.append(Device(build))
        self.hiring(self.devices[-1])
        return self.devices[-1]


@contextmanager
def serving(registry: Any, settings: Settings = QUIET):
    service = Service(registry, settings)
    try:
        yield service
    finally:
        service.wait(service.assembly.stop())
        service.loop.close()
