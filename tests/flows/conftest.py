"""Prefect's server, one for all flows that are run here, and places in which a system's flow is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.runs import Runs, place_in, prefect_server
from tests.flows.worlds import FLOWS, World


@pytest.fixture(scope="session")
def prefect(tmp_path_factory) -> Iterator[str]:
    """Its address."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as address:
        yield address


@pytest.fixture(scope="module")
def world(request, tmp_path_factory, prefect) -> Iterator[World]:
    """A system's own place, after the first run of its flow; the system is the fixture's parameter."""
    folder = tmp_path_factory.mktemp(request.param)
    FLOWS[request.param].write(folder)
    with place_in(folder, prefect):
        yield World(request.param, folder)


@pytest.fixture
def run(world) -> Runs:
    """Runs the flow once more; gives what it released and which stages did work."""
    return world.runs


@pytest.fixture
def place(world) -> Path:
    """The folder with the system's data, which is the working directory."""
    return world.folder
