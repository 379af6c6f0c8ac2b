"""The tokens service in-process over a fake device and a registry in a folder: what the HTTP tests share."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from prometheus_client import CollectorRegistry

from pliant.errors import RegistryError, WorkerError
from pliant.protocol import Action, Arrived, Drop, Journal
from registry import codec
from registry.package import Published
from serving.clock import loop_clock
from serving.driver import Driver
from serving.metrics import Metrics
from serving.settings import Settings
from serving.tokens_api import create_app
from serving.tokens_catalog import Catalog, ServedTask, load_catalog
from serving.tokens_endpoint import ORIGINS, Parts, TokensEndpoint
from serving.tokens_live import Live
from serving.tokens_refresh import Refresher
from tests.serving.fakes import FakeWorker, FifoScheduler
from tests.tokens_samples import tiny_backbone, tiny_profile, tiny_task

SETTINGS = Settings(max_body_bytes=200_000, max_image_pixels=1_000_000)


class FolderRegistry:
    """Model versions in plain folders, with one alias; `down` makes it fail as a registry out of reach does."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.champions: dict[str, int] = {}
        self.fetched: list[str] = []
        self.discarded: list[Path] = []
        self.down = False

    def publish(self, name: str, artifact, promote: bool = True) -> str:
        """The next version, and its digest."""
        version = 1 + len(list(self._root.glob(f"{name}/*")))
        if promote:
            self.champions[name] = version
        return codec.save(artifact, self._root / name / str(version))

    def fetch(self, name: str, which: str | int):
        found = self.version(name, which)
        if found is None:
            raise RegistryError(f"{name} has no version {which}")
        self.fetched.append(f"{name}/{found.version}")
        return self._root / name / str(found.version), found

    def version(self, name: str, which: str | int):
        self._answer()
        number = self.champions.get(name) if which == "champion" else which
        folder = self._root / name / str(number)
        if not isinstance(number, int) or not folder.is_dir():
            return None
        return Published(name, number, codec.digest(folder), f"models:/{name}/{number}", {})

    def versions(self, prefix: str, alias: str) -> dict[str, int]:
        self._answer()
        return {name: v for name, v in self.champions.items() if name.startswith(prefix) and alias == "champion"}

    def names(self, prefix: str) -> list[str]:
        self._answer()
        return sorted(folder.name for folder in self._root.glob(prefix + "*"))

    def discard(self, folder: Path) -> None:
        self.discarded.append(folder.relative_to(self._root))

    def _answer(self) -> None:
        if self.down:
            raise RegistryError("the registry does not answer")


class FakeDevice(FakeWorker):
    """Answers as the tokens device process does, with the first class ahead. Its build is the catalog that it serves."""

    def __init__(self, catalog: Catalog, trouble: str = "") -> None:
        super().__init__(seconds=0.001)
        self._backbone, self._tasks, self.trouble = catalog.backbone_digest, dict(catalog.tasks), trouble

    async def start(self) -> None:
        await super().start()
        if self.trouble:
            raise WorkerError(self.trouble)

    async def update(self, value: ServedTask, build: Catalog) -> None:
        await super().update(value.task.name, build)
        self._tasks[value.task.name] = value

    async def run(self, setting, payloads):
        await asyncio.sleep(self.seconds)
        served = [self._tasks[task] for task, _ in payloads]
        rows = [probabilities(len(one.task.classes)) for one in served]
        return [(one.digest, self._backbone, row) for one, row in zip(served, rows, strict=True)], self.seconds


def probabilities(classes: int) -> np.ndarray:
    return np.array([0.75, *[0.25 / (classes - 1)] * (classes - 1)], dtype=np.float32)


class FullScheduler(FifoScheduler):
    """Says "full" to utility 0.125 and "late" to 0.25."""

    def handle(self, event, now) -> list[Action]:
        if isinstance(event, Arrived) and event.request.utility in (0.125, 0.25):
            return [Drop(event.request.id, "full" if event.request.utility == 0.125 else "late")]
        return super().handle(event, now)


class Service:
    """The app over fakes, with a client."""

    def __init__(self, registry: FolderRegistry, settings: Settings = SETTINGS) -> None:
        self.registry, self.trouble = registry, ""  # of the next device process
        catalog = load_catalog(registry, "champion")
        self.scheduler = FullScheduler()
        self.device = FakeDevice(catalog)
        self.journal: Journal = []
        self.driver = Driver(self.scheduler, [self.device], self.journal.append, loop_clock())
        self.counted = CollectorRegistry()
        metrics = Metrics("gamma", ORIGINS, self.counted)
        self.live = Live(catalog, self.driver, lambda catalog: catalog, self.hire)
        self.refresher = Refresher(self.live, registry, "champion", settings.refresh_seconds, metrics)
        parts = Parts(settings, self.driver, self.live, self.refresher, metrics, lambda c: c.profile.latency.settings)
        app = create_app(Path(__file__).parent)
        app.state.endpoint = TokensEndpoint(parts)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

    @property
    def catalog(self) -> Catalog:
        return self.live.catalog

    def hire(self, catalog: Catalog) -> FakeDevice:
        self.device = FakeDevice(catalog, self.trouble)
        return self.device

    async def refresh(self) -> dict:
        """What POST refresh answers."""
        response = await self.client.post("/refresh")
        return {"status": response.status_code, **response.json()}


@pytest.fixture
def registry(tmp_path):
    backbone = tiny_backbone()
    registry = FolderRegistry(tmp_path)
    digest = registry.publish("pliant-tokens-backbone", backbone)
    registry.publish("pliant-tokens-profile", tiny_profile(digest, "a device"))
    registry.publish("pliant-tokens-task-digits", tiny_task("digits", ["zero", "one", "two"], digest))
    return registry


def serve(registry, check, settings: Settings = SETTINGS):
    async def main():
        service = Service(registry, settings)
        await service.driver.start()
        service.live.tell()
        async with service.client:
            await check(service)
        await service.driver.stop()

    asyncio.run(main())


def png(width: int = 16, height: int = 16) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).save(file, "PNG")
    return file.getvalue()


def question(**changes):
    fields = {"image": base64.b64encode(png()).decode(), "task": "digits", "deadline": 5.0, "utility": 1.0, **changes}
    return {name: value for name, value in fields.items() if value is not None}


async def ask(service, **changes) -> httpx.Response:
    body = json.dumps(question(**changes))  # httpx refuses to write NaN; a client might not
    return await service.client.post("/predict", content=body, headers={"content-type": "application/json"})


async def check_good(service) -> None:
    response = await ask(service)
    assert response.status_code == 200, response.text
