"""A system's champion behind its real endpoint, for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.load_generator import allow_many_connections
from cli.service import service_settings
from flows import servers, settings
from pliant.errors import PliantError
from serving.launch import Service, launch
from serving.settings import settings_of


@contextmanager
def serving(system: str, port: int = 0, told: settings.Settings | None = None, **options: object) -> Iterator[Service]:
    """A ready service from the registry of `told` (default: this project's); one that does not end cleanly is an error."""
    with launched(system, port, told, **options) as service:
        service.wait_until_ready()
        yield service


@contextmanager
def launched(system: str, port: int = 0, told: settings.Settings | None = None, **options: object) -> Iterator[Service]:
    """The same service, which may not be ready yet: several can be started at the same time."""
    told = told or settings.read()
    settings.prepare(told)
    allow_many_connections()
    chosen = service_settings(told, settings_of(system), **options)
    port = servers.free_port(port)
    service = launch(chosen, told.home, port, told.home / "logs" / f"endpoint-{port}.log")
    try:
        yield service
    finally:
        status = service.stop()
    if status != 0:
        raise PliantError(f"the endpoint ended with status {status}; its log is {service.log}")
