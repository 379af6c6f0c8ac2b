"""Prefect's server, one for all flows that are run here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.runs import prefect_server


@pytest.fixture(scope="session")
def prefect(tmp_path_factory) -> Iterator[str]:
    """Its address."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as address:
        yield address
