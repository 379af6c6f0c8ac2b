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

from pliant.errors import RegistryError
from pliant.protocol import Action, Arrived, Drop
from registry import codec
from registry.package import Published
from serving.driver import Driver, loop_clock
from serving.metrics import Metrics
from serving.settings import Settings
from serving.tokens_api import create_app
from serving.tokens_catalog import Catalog, ServedTask, load_catalog
from serving.tokens_endpoint import Parts, TokensEndpoint
from tests.serving.fakes import FakeWorker, FifoScheduler
from tests.tokens_samples import tiny_backbone, tiny_profile, tiny_task

SETTINGS = Settings(max_body_bytes=200_000, max_image_pixels=1_000_000)


class FolderRegistry:
    """Model versions in plain folders; `down` makes it fail as a registry out of reach does."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.down = False

    def publish(self, name: str, artifact) -> str:
        return codec.save(artifact, self._root / name)

    def fetch(self, name: str, which: str | int):
        found = self.version(name, which)
        if found is None:
            raise RegistryError(f"{name} has no version {which}")
        return self._root / name, found

    def version(self, name: str, which: str | int):
        folder = self._root / name
        if not folder.is_dir() or which not in ("champion", 1):
            return None
        return Published(name, 1, codec.digest(folder), f"models:/{name}/1", {})

    def names(self, prefix: str) -> list[str]:
        if self.down:
            raise RegistryError("the registry does not answer")
        return sorted(folder.name for folder in self._root.glob(prefix + "*"))


class FakeDevice(FakeWorker):
    """Answers as the tokens device process does, with the first class ahead."""

    def __init__(self, tasks: dict[str, ServedTask]) -> None:
        super().__init__(seconds=0.001)
        self.tasks = dict(tasks)

    async def update(self, value: ServedTask) -> None:
        self.tasks[value.task.name] = value

    async def run(self, setting, payloads):
        await asyncio.sleep(self.seconds)
        served = [self.tasks[task] for task, _ in payloads]
        return [(one.digest, probabilities(len(one.task.classes))) for one in served], self.seconds


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

    def __init__(self, registry: FolderRegistry) -> None:
        self.registry = registry
        self.catalog: Catalog = load_catalog(registry, "champion")
        self.scheduler = FullScheduler()
        self.device = FakeDevice(dict(self.catalog.tasks))
        self.driver = Driver(self.scheduler, [self.device], lambda entry: None, loop_clock())
        self.counted = CollectorRegistry()
        metrics = Metrics("gamma", self.counted)
        gammas = self.catalog.profile.latency.settings
        parts = Parts(SETTINGS, self.catalog, gammas, self.scheduler, self.driver, metrics, lambda: registry)
        app = create_app(Path(__file__).parent)
        app.state.endpoint = TokensEndpoint(parts)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


@pytest.fixture
def registry(tmp_path):
    backbone = tiny_backbone()
    registry = FolderRegistry(tmp_path)
    digest = registry.publish("pliant-tokens-backbone", backbone)
    registry.publish("pliant-tokens-profile", tiny_profile(digest, "a device"))
    registry.publish("pliant-tokens-task-digits", tiny_task("digits", ["zero", "one", "two"], digest))
    return registry


def serve(registry, check):
    async def main():
        service = Service(registry)
        await service.driver.start()
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
