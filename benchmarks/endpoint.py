"""A system's champion behind its real endpoint, for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.load_generator import allow_many_connections
from flows import servers, settings
from pliant.errors import PliantError
from serving.launch import Service, launch
from serving.settings import Settings


def experiment(system: str) -> str:
    """The registry's experiment of a system. Imported late: a system alone does not load what the others train with."""
    match system:
        case "bins":
            from flows.bins_live import EXPERIMENT
        case "cascade":
            from flows.cascade_live import EXPERIMENT
        case "packing":
            from flows.packing_live import EXPERIMENT
        case _:
            from flows.tokens_publish import EXPERIMENT
    return EXPERIMENT


def service_settings(told: settings.Settings, system: str, **options: object) -> Settings:
    """The service's settings for this project's registry; `options` as in serving/settings.py."""
    where = {
        "system": system,
        "registry_uri": told.tracking_uri,
        "experiment": experiment(system),
        "artifact_root": str(told.artifact_root),
        "threads": 1,
        "home": told.home,
    }
    return Settings(**{**where, **options})  # type: ignore[arg-type]


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
    chosen = service_settings(told, system, **options)
    port = servers.free_port(port)
    service = launch(chosen, told.home, port, told.home / "logs" / f"endpoint-{port}.log")
    try:
        yield service
    finally:
        status = service.stop()
    if status != 0:
        raise PliantError(f"the endpoint ended with status {status}; its log is {service.log}")
