"""How many requests a second one service takes from HTTP to the device, and where the limit lies.

The service is the real one in its own process, with a device process that computes nothing. What limits it is the event
loop, which is one core: the processor seconds that the service's process takes for a request say how many requests a second
that core can serve, whatever else runs on the machine. What each step costs is measured by itself, in this process.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import pickle
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image
from starlette.requests import Request as HttpRequest

from benchmarks.load_generator import Example, allow_many_connections, capacity, warm
from benchmarks.tokens.idle_device import SECONDS
from cli.service import service_settings
from flows import servers, settings
from flows.tokens.stages import Bundle
from pliant.progress import Progress
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.policies import make
from pliant.tokens.simulated import SimulatedDevice
from serving.http.large_body import BodyParser
from serving.launch import Service, launch
from serving.tokens.decoders import Decoders
from serving.tokens.request import read_request
from serving.tokens.settings import TokensSettings
from serving.workers.child_process import pack
from serving.workers.device_process import ArrayOutbox

SERVICE = "benchmarks.tokens.host_service:TokensService"
BATCH = 16  # requests in a launch, for the cost of the way to the device
STEPS = ("parsing", "decoding", "scheduling", "transport")
HEADINGS = (
    "picture",
    "requests/s",
    "ms of a core",
    "requests/s a core can serve",
    *(f"{s}, ms" for s in STEPS),
    "rest, ms",
)


@dataclass(frozen=True, slots=True)
class HostRow:
    """`rate`: requests answered a second of wall time; the rest are processor seconds of the service a request."""

    picture: str
    rate: float
    seconds: float
    steps: Mapping[str, float]

    @property
    def bears(self) -> float:
        """Return the requests a second that the service's one core can serve."""
        return 1 / self.seconds

    @property
    def rest(self) -> float:
        """Return what no step accounts for: HTTP, the event loop, the way between coroutines, the answer."""
        return self.seconds - sum(self.steps.values())

    @property
    def limit(self) -> str:
        """Return the step that takes most."""
        return max([*self.steps.items(), ("HTTP and the event loop", self.rest)], key=lambda step: step[1])[0]

    def cells(self) -> tuple[str, ...]:
        """Return the cells under HEADINGS."""
        steps = [f"{1e3 * self.steps[step]:.3f}" for step in STEPS]
        core = f"{1e3 * self.seconds:.2f}", f"{self.bears:.0f}"
        return self.picture, f"{self.rate:.0f}", *core, *steps, f"{1e3 * self.rest:.3f}"

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"bears": self.bears, "rest": self.rest, "limit": self.limit}


def pictures(size: int) -> dict[str, bytes]:
    """Return files as clients send them: a picture of the model's own size, one of a larger model's size, and a photo."""
    sizes = ((size, size, "PNG"), (224, 224, "JPEG"), (500, 375, "JPEG"))
    return {f"{kind} {width} x {height}": _file(width, height, kind) for width, height, kind in sizes}


def _file(width: int, height: int, kind: str) -> bytes:
    coarse = np.random.default_rng(0).integers(0, 256, (max(1, height // 8), max(1, width // 8), 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((width, height)).save(file, kind)
    return file.getvalue()


def measure(bundle: Bundle, seconds: float, clients: int, progress: Progress) -> list[HostRow]:
    """Saturate the service with each picture in turn."""
    task, size = bundle.tasks[0].name, bundle.backbone.image_size
    bodies, rows = pictures(size), []
    project = settings.read()
    settings.prepare(project)
    allow_many_connections()
    port = servers.free_port(0)
    chosen = service_settings(project, TokensSettings, any_profile=True, refresh_seconds=0.0)
    service = launch(chosen, project.home, port, project.home / "logs" / f"host-{port}.log", SERVICE)
    try:
        service.wait_until_ready()
        for picture, body in bodies.items():
            rate, spent = _saturated(service, task, body, seconds, clients)
            rows.append(HostRow(picture, rate, spent, steps(task, size, body)))
            progress(len(rows), len(bodies))
    finally:
        service.stop()
    return rows


def _saturated(service: Service, task: str, body: bytes, seconds: float, clients: int) -> tuple[float, float]:
    """Return the requests a second, and the processor seconds of the service's process for each."""
    pool = {task: [Example(base64.b64encode(body).decode(), "")]}
    warm(service.url, pool, 40, deadline=20.0)
    process = service_process(service.process.pid)
    before = processor_seconds(process)
    rate = asyncio.run(capacity(service.url, pool, seconds, clients, lead=0.0))
    return rate, (processor_seconds(process) - before) / max(rate * seconds, 1.0)


def service_process(supervisor: int) -> int:
    """Return the process of the service among the supervisor's children: the one that has processes of its own."""
    parents = {int(folder.name): _parent(folder) for folder in Path("/proc").iterdir() if folder.name.isdecimal()}
    children = [pid for pid, parent in parents.items() if parent == supervisor]
    return max(children, key=lambda pid: sum(parent == pid for parent in parents.values()))


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def processor_seconds(pid: int) -> float:
    """Return the processor seconds that a process has taken so far, in all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps(task: str, size: int, body: bytes, repeats: int = 100) -> dict[str, float]:
    """Return the processor seconds of each step for one request with this picture, in the process of the service."""
    fields = {"image": base64.b64encode(body).decode(), "task": task, "deadline": 1.0, "utility": 1.0}
    content = json.dumps(fields).encode()
    decoders = Decoders(max_pixels=10**8)

    async def all_steps() -> dict[str, float]:
        await decoders.decode(body, size, 60.0)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # the starts of the decoders' processes
        return {
            "parsing": await _seconds(lambda: read_request(_http(content), 10**8, 60.0), repeats),
            "decoding": await _seconds(lambda: decoders.decode(body, size, 60.0), repeats),
            "scheduling": scheduling(),
            "transport": await _seconds(lambda: _transport(task, size), repeats) / BATCH,
        }

    return asyncio.run(all_steps())


async def _seconds(call: Callable[[], Awaitable[object]], repeats: int) -> float:
    """Return the processor seconds of one call."""
    for _ in range(repeats // 10):
        await call()
    start = time.process_time()
    for _ in range(repeats):
        await call()
    return (time.process_time() - start) / repeats


def _http(content: bytes) -> HttpRequest:
    app = SimpleNamespace(state=SimpleNamespace(parser=BodyParser()))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    return HttpRequest({"type": "http", "method": "POST", "path": "/predict", "headers": headers, "app": app}, receive)


async def _transport(task: str, size: int) -> None:
    """Do what the service does to send a batch to a device process and to take in its outputs."""
    outbox = ArrayOutbox()
    outbox.pack(("run", (0, [(task, np.zeros((size, size, 3), np.uint8)) for _ in range(BATCH)])))
    outbox.close()
    pickle.loads(pack((True, ([("a" * 64, "b" * 64, np.zeros(10, np.float32))] * BATCH, SECONDS)))[8:])


def scheduling(seconds: float = 2.0) -> float:
    """Return the processor seconds that the scheduler takes for a request of an overload, in the simulator."""
    knowledge = published.profile(published.FIGURE_4B)
    load = published.synthetic(2.0, 0, published.SyntheticConfig(seconds=seconds))
    device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, np.random.default_rng(0))
    scheduler = make("default", knowledge)
    start = time.process_time()
    simulate(scheduler, load, device)
    return (time.process_time() - start) / len(load)
