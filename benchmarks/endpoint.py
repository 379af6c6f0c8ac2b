"""A system's champion behind its real endpoint, for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import psutil

from pliant.benchmarks.load_generator import allow_many_connections
from pliant.cli.options import service_settings
from pliant.errors import PliantError
from pliant.flows import servers, settings
from pliant.progress import Progress, silent
from pliant.serving.launch import Service, launch
from pliant.serving.settings import settings_of


@contextmanager
def serving(system: str, port: int = 0, project: settings.Settings | None = None, **options: object) -> Iterator[str]:
    """Give the address of a ready service from the registry of `project` (default: this one).

    Raises `PliantError` if the service does not end cleanly.
    """
    with launched(system, options, port=port, project=project) as service:
        service.wait_until_ready()
        yield service.url


@contextmanager
def serving_each(
    system: str, options: Mapping[str, Mapping[str, object]], progress: Progress = silent
) -> Iterator[dict[str, str]]:
    """Give the addresses of ready services of one system by name, started at the same time, each with its own options."""
    with ExitStack() as stack:
        services = {name: stack.enter_context(launched(system, own)) for name, own in options.items()}
        for number, service in enumerate(services.values(), start=1):
            service.wait_until_ready()
            progress(number, len(services))
        yield {name: service.url for name, service in services.items()}


@contextmanager
def launched(
    system: str,
    options: Mapping[str, object],
    service: str = "",
    port: int = 0,
    project: settings.Settings | None = None,
) -> Iterator[Service]:
    """Start a service, which may not be ready yet; `service` is the import path of another one than the system's own.

    Raises `PliantError` if it does not end cleanly.
    """
    project = project or settings.read()
    settings.prepare(project)
    allow_many_connections()
    chosen = service_settings(project, settings_of(system), **options)
    port = servers.free_port(port)
    running = launch(chosen, project.home, port, project.home / "logs" / f"endpoint-{port}.log", service)
    try:
        yield running
    finally:
        status = running.stop()
    if status != 0:
        raise PliantError(f"the endpoint ended with status {status}; its log is {running.log}")


def core_seconds(service: Service) -> float:
    """Return the processor time that a running service's processes have taken, in seconds."""
    first = psutil.Process(service.process.pid)
    every = [process.cpu_times() for process in (first, *first.children(recursive=True))]
    return sum(times.user + times.system for times in every)
