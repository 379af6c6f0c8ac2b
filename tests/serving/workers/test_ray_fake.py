"""The connection to Ray, over a fake of Ray: what it is asked for, and what errors say."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from pliant.errors import WorkerError
from pliant.serving.workers import ray_workers
from pliant.serving.workers.ray_workers import ENVIRONMENT, DeviceActor, RayPool, RayWorker, Resources, import_ray
from pliant.serving.workers.worker import ModelError
from tests.fixtures.fakes import EchoModel


class Connection:
    """Replaces the handler of SIGTERM, as Ray does."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.calls, self.trouble = [], trouble

    def init(self, address, **options):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.calls.append((address, options))
        if self.trouble:
            raise self.trouble

    def shutdown(self):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.calls.append("shutdown")


@pytest.fixture
def ray(monkeypatch):
    ray = Connection()
    monkeypatch.setattr(ray_workers, "import_ray", lambda: ray)
    return ray


@pytest.fixture
def handler():
    def handle(number, frame):
        pass

    before = signal.signal(signal.SIGTERM, handle)
    yield handle
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:port"])
def test_where_nothing_listens_is_an_error_before_ray_tries_for_minutes(ray, address):
    with pytest.raises(WorkerError, match="no Ray cluster answers at"):
        RayPool(address)
    assert ray.calls == []


def test_where_ray_is_missing_the_error_says_how_to_get_it(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    usage, *others = ENVIRONMENT
    monkeypatch.setenv(usage, "1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkerError, match="pip install"):
        import_ray()
    assert os.environ[usage] == "1"  # who sets a variable means it
    assert {name: os.environ[name] for name in others} == {name: ENVIRONMENT[name] for name in others}


class RayError(Exception):
    """What Ray raises."""


class Actor:
    """Does what the actor of a real cluster does; `lose` ends it. `trouble`: calls that fail, with their errors."""

    def __init__(self, trouble: dict[str, Exception]) -> None:
        self.device, self.trouble = DeviceActor(), trouble
        self.lost = asyncio.Event()
        self.groups = []

    def __getattr__(self, name):
        async def call(*arguments):
            await asyncio.sleep(0)
            if self.trouble.get(name) == "silent":
                await asyncio.sleep(1e6)
            if name in self.trouble:
                raise self.trouble[name]
            if name == "outlast":
                await self.lost.wait()
                raise self.trouble["lost"]
            return ("a node", 77) if name == "home" else getattr(self.device, name)(*arguments)

        def options(**changes):
            self.groups.append((name, changes))
            return SimpleNamespace(remote=call)

        return SimpleNamespace(remote=call, options=options)


class Ray:
    """Ray's place: actors in the order in which they are started, with the resources that they need."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.actors, self.needs, self.killed, self.trouble, self.head = [], [], [], {}, ""

    def remote(self, **options):
        assert (options["max_restarts"], options["max_task_retries"]) == (0, 0), "the scheduler decides on that"
        assert options["scheduling_strategy"] == "SPREAD"
        return lambda _actor: self

    def options(self, **needs):
        def remote():
            self.needs.append(needs)
            self.actors.append(Actor(dict(self.trouble)))
            return self.actors[-1]

        return SimpleNamespace(remote=remote)

    def kill(self, actor) -> None:
        self.killed.append(actor)

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.head)


@pytest.fixture
def fake(monkeypatch):
    ray = Ray()
    monkeypatch.setattr(ray_workers, "import_ray", lambda: ray)
    return ray


@asynccontextmanager
async def on_fake(resources=None):
    worker = RayWorker(EchoModel, resources or Resources(), 2.0, 300.0)
    try:
        yield worker
    finally:
        await worker.stop()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.virtual
async def test_a_worker_is_an_actor_with_its_resources_that_runs_the_model(fake):
    async with on_fake(Resources(0.5, 2.0, {"TPU": 1.0})) as worker:
        worker.kill()
        assert (worker.node, worker.pid, fake.killed) == (None, None, [])
        with pytest.raises(WorkerError, match=r"^the device's actor is not running$"):
            await worker.run(0, ["x"])
        await worker.start()
        assert (worker.node, worker.pid) == ("a node", 77)
        await worker.update("task b", EchoModel)
        assert await worker.run(3, ["x"]) == ([("x", 3, ("task b",))], 0.001)
        with pytest.raises(ModelError, match=r"^ValueError: no such payload$"):
            await worker.run(0, ["raise"])
        (actor,) = fake.actors
        assert actor.groups == [("outlast", {"concurrency_group": "watch"})]
        worker.kill()
        assert fake.killed == [actor] and worker.pid == 77
        await worker.stop()
        assert fake.killed == [actor] * 2 and (worker.node, worker.pid) == (None, None)
        await worker.stop()
        assert len(fake.killed) == 2
    assert fake.needs == [{"num_cpus": 0.5, "num_gpus": 2.0, "resources": {"TPU": 1.0}}]


@pytest.mark.virtual
async def test_the_end_of_an_actor_is_reported_once_and_that_of_a_former_one_is_not(fake):
    fake.trouble = {"lost": RayError("the node died\nand more")}

    async with on_fake() as worker:
        told = []
        await worker.start()
        worker.on_end = lambda: told.append("end")
        await worker.restart()
        former, present = fake.actors
        former.lost.set()
        await asyncio.sleep(1)
        assert told == []
        present.lost.set()
        await asyncio.sleep(1)
        assert told == ["end"]
        await worker.restart()
        worker.on_end = None
        fake.actors[-1].lost.set()  # nobody wants to know
        await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("home", "no node could start the device's actor: the node died"),
        ("ask", "the device's actor ended during build: the node died"),
    ],
)
@pytest.mark.virtual
async def test_what_ray_raises_is_told_in_one_line_and_the_actor_goes(fake, call, sentence):
    fake.trouble = {call: RayError("the node died \nand much more")}

    async with on_fake() as worker:
        with pytest.raises(WorkerError, match=f"^{sentence}$"):
            await worker.start()
        assert fake.killed == ([fake.actors[0]] if call == "home" else [])
        assert (worker.pid is None) is (call == "home")
