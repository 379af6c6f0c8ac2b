"""Runs a flow from a command line: a Prefect server for as long as it lasts, unless one is already named. Knows no system.

Prefect reads its settings when it is imported, so a flow is imported only after they are prepared.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pliant import systems
from pliant.device import describe_device
from pliant.errors import PliantError
from pliant.flows import servers, settings
from pliant.flows.progress import stage
from pliant.flows.settings import Settings

Flow = Callable[..., Any]
"""A flow as the command line knows it: takes the path of a configuration, values laid over it, and others by name."""


@contextmanager
def with_prefect(
    project: Settings, meanwhile: Callable[[], object] = lambda: None, for_people: bool = False
) -> Iterator[str]:
    """Give the address of a Prefect server: the one that PREFECT_API_URL names, else one of our own for this context.

    `meanwhile` is called while our own starts, which takes seconds: it may import what is needed next, Prefect included.
    `for_people`: it has its usual port, if that is free. Links lead there anyway: a later server shows what this one kept.
    """
    settings.prepare(project)
    named = os.environ.get("PREFECT_API_URL")
    if named:
        yield named.removesuffix("/api")
        return
    port = servers.usual_port("Prefect") if for_people else servers.free_port()
    os.environ["PREFECT_API_URL"] = f"http://{servers.HOST}:{port}/api"
    os.environ.setdefault("PREFECT_UI_URL", f"http://{servers.HOST}:{servers.PORTS['Prefect']}")
    try:
        with ExitStack() as stack:
            with stage("Prefect's server"):
                address = stack.enter_context(servers.prefect_server(project, port, meanwhile))
            stack.callback(send_logs)  # before the server ends
            yield address
    finally:
        del os.environ["PREFECT_API_URL"]


def send_logs() -> None:
    """Send Prefect's server what runs have logged so far."""
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()


def run_flow(system: str, config: str | None, overrides: Mapping[str, Any], new_task: bool = False) -> dict[str, Any]:
    """Run a system's flow here and return its release as plain values. A failed stage is raised as one sentence.

    `new_task`: whether it may release a task that the live release lacks.
    """
    part = systems.system(system).part("flows", "config")
    flow_config = part.read(Path(config) if config else None, overrides)
    announce(part.sizes(flow_config), flow_config.device)
    with with_prefect(settings.read(), meanwhile=partial(systems.system(system).part, "flows", "flow")):
        return run_connected(system, config, overrides, new_task)


def run_connected(
    system: str, config: str | None, overrides: Mapping[str, Any], new_task: bool = False
) -> dict[str, Any]:
    """Run a system's flow with Prefect's server already there."""
    return run(getattr(systems.system(system).part("flows", "flow"), system), config, overrides, new_task=new_task)


def run(flow: Flow, config: str | None, overrides: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Run the flow and return its release as plain values. A failed stage is raised as one sentence.

    `more`: further parameters of the flow.
    """
    try:
        result: dict[str, Any] = flow(config, dict(overrides), **more)
    except PliantError:
        raise
    except Exception as error:
        raise PliantError(f"the flow failed: {type(error).__name__}: {error}") from error
    return result


def announce(sizes: str, device: str) -> None:
    """Print what a flow will train, and on which device, before it begins. Raises `InputError` without that device."""
    print(f"Sizes: {sizes}.\nDevice: {describe_device(device)}.", file=sys.stderr)  # noqa: T201


def show(released: Mapping[str, Any]) -> None:
    """Print what was released."""
    table = Table("model", "version", "", title="promoted" if released["promoted"] else "not promoted")
    for name, version in released["versions"].items():
        table.add_row(name, str(version), "new" if name in released["new"] else "unchanged")
    console = Console()
    console.print(table)
    console.print(f"The gate: {released['reason']}.")
