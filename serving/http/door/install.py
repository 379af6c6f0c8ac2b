"""Puts the door in front of a server that uvicorn configures elsewhere (BentoML), by uvicorn's own tables of choices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import uvicorn.config

from pliant.serving.http.door.door import Door
from pliant.serving.http.door.load import LoopLoad, MeasuredLoop
from pliant.serving.http.door.protocol import LimitedProtocol


def install(door: Door) -> None:
    """Make uvicorn use this door for every server of this process that is configured from now on."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = partial(LimitedProtocol, door)  # type: ignore[assignment]
    uvicorn.config.LOOP_FACTORIES["auto"] = partial(_loop_factory, door.load)  # type: ignore[assignment]


def _loop_factory(load: LoopLoad, use_subprocess: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    del use_subprocess
    return partial(MeasuredLoop, load)
