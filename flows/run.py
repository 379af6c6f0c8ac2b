"""Runs a flow from a command line: a Prefect server for as long as it lasts, unless one is already named. Knows no system.

Prefect reads its settings when it is imported, so a flow is imported only after they are prepared.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from flows import servers, settings
from flows.progress import stage
from flows.settings import Settings
from pliant.errors import PliantError

Flow = Callable[[str | None, dict[str, Any]], Any]
"""A flow as the command line knows it: the path of a configuration, and what lies over it."""


@contextmanager
def with_prefect(told: Settings, port: int = 0, meanwhile: Callable[[], object] = servers.nothing) -> Iterator[str]:
    """A Prefect server to record runs: the one that PREFECT_API_URL names, else one of our own while the context lasts.

    `meanwhile` is called while our own starts, which takes seconds: it may import what is needed next, Prefect included.
    """
    settings.prepare(told)
    named = os.environ.get("PREFECT_API_URL")
    if named:
        yield named.removesuffix("/api")
        return
    port = servers.free_port(port)
    os.environ["PREFECT_API_URL"] = f"http://{servers.HOST}:{port}/api"
    try:
        with ExitStack() as stack:
            with stage("Prefect's server"):
                address = stack.enter_context(servers.prefect_server(told, port, meanwhile))
            yield address
    finally:
        del os.environ["PREFECT_API_URL"]


def run(flow: Flow, config: str | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The flow's release as plain values. A failed stage is raised as one sentence."""
    try:
        result: dict[str, Any] = flow(config, dict(overrides))
    except PliantError:
        raise
    except Exception as error:
        raise PliantError(f"the flow failed: {type(error).__name__}: {error}") from error
    return result


def tell_sizes(sizes: str) -> None:
    """Say before a flow begins what it will train."""
    print(f"Sizes: {sizes}.", file=sys.stderr)  # noqa: T201


def show(released: Mapping[str, Any]) -> None:
    """What was released, for people."""
    table = Table("model", "version", "", title="promoted" if released["promoted"] else "not promoted")
    for name, version in released["versions"].items():
        table.add_row(name, str(version), "new" if name in released["new"] else "unchanged")
    console = Console()
    console.print(table)
    console.print(f"The gate: {released['reason']}.")
