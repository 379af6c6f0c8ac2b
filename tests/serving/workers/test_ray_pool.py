"""The connection to Ray, over a fake of Ray: what it is asked for, and what errors say."""

from __future__ import annotations

import os
import signal
import socket
import sys

import pytest

from pliant.errors import InputError, WorkerError
from pliant.serving.workers import ray_workers
from pliant.serving.workers.ray_workers import ENVIRONMENT, RayPool, Resources, import_ray


class Ray:
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
    ray = Ray()
    monkeypatch.setattr(ray_workers, "import_ray", lambda: ray)
    return ray


@pytest.fixture
def handler():
    def handle(number, frame):
        pass

    before = signal.signal(signal.SIGTERM, handle)
    yield handle
    signal.signal(signal.SIGTERM, before)


def test_without_an_address_a_cluster_of_this_machine_is_started_that_nobody_else_can_reach(ray, handler):
    pool = RayPool()
    ((address, options),) = ray.calls
    assert (address, options["namespace"], options["include_dashboard"]) == ("local", "pliant", False)
    assert (options["log_to_driver"], options["configure_logging"]) == (False, False)
    assert options["_node_ip_address"].startswith("127.") and options["object_store_memory"] >= 75 * 1024**2
    assert signal.getsignal(signal.SIGTERM) is handler  # by which pending requests are answered before the end
    pool.close()
    assert ray.calls[-1] == "shutdown" and signal.getsignal(signal.SIGTERM) is handler


def test_a_cluster_that_listens_is_joined_and_nothing_of_it_is_configured(ray, handler):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        RayPool(address)
    ((joined, options),) = ray.calls
    assert joined == address
    assert set(options) == {"log_to_driver", "configure_logging", "namespace"}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:port"])
def test_where_nothing_listens_is_an_error_before_ray_tries_for_minutes(ray, address):
    with pytest.raises(WorkerError, match="no Ray cluster answers at"):
        RayPool(address)
    assert ray.calls == []


def test_a_client_address_is_refused(ray):
    with pytest.raises(InputError, match="host:port or auto"):
        RayPool("ray://127.0.0.1:10001")
    assert ray.calls == []


@pytest.mark.parametrize("kind", [ConnectionError, RuntimeError, TimeoutError, ValueError])
def test_what_ray_raises_is_told_in_one_line(ray, handler, kind):
    ray.trouble = kind("version mismatch\nand much more")
    with pytest.raises(WorkerError, match=r"no connection to the Ray cluster at this machine: version mismatch$"):
        RayPool()


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


def test_resources_are_named_for_people():
    assert str(Resources()) == "1 CPU"
    assert str(Resources(0.5, 2.0, {"TPU": 1.0})) == "0.5 CPU and 2 GPU and 1 TPU"
    assert str(Resources(0.0)) == "nothing"
