"""How BentoML hosts a system: the app that it mounts, what all services are told alike, and the parts' way up.

BentoML's supervisor imports this file and the services' too, so whatever is heavy is imported in a start-up hook, which runs
in the service process alone. Knows no system.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fastapi import FastAPI

from serving.bento.bentoml_patches import freeze_gc, patch_timeouts, switch_off_tracing

if TYPE_CHECKING:
    from serving.settings import Settings

OPTIONS: Mapping[str, Any] = {
    "workers": 1,  # the scheduler's state is this process's own
    "metrics": {"enabled": True},
    "tracing": {"excluded_urls": ".*"},  # see switch_off_tracing: even a span that goes nowhere costs time
    "logging": {"access": {"enabled": False}},
}
"""Of every service."""


class Assembly(Protocol):
    @property
    def endpoint(self) -> Any: ...


A = TypeVar("A", bound=Assembly)
S = TypeVar("S", bound="Settings")


def hosted(create_app: Callable[[Path], FastAPI]) -> FastAPI:
    """The app, with BentoML ready to serve it. Before the service is told of."""
    switch_off_tracing()
    patch_timeouts()
    return create_app(Path(str(files("bentoml"))) / "_internal" / "server" / "static_content")


async def begin(app: FastAPI, assemble: Callable[[S], Awaitable[A]], kind: type[S]) -> A:
    """The parts, all started. BentoML accepts connections only after this."""
    from serving.settings import from_environment

    assembly = await assemble(from_environment(os.environ, kind))
    app.state.endpoint = assembly.endpoint
    freeze_gc()
    return assembly
