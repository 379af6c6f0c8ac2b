"""Small services for the attacks that any service would do for, and for those on pictures."""

from __future__ import annotations

import pytest

from qa.grounds import served


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    with served("bins", folder, journal=folder / "journal.jsonl") as service:
        yield service


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    with served("tokens", tmp_path_factory.mktemp("attacked")) as service:
        yield service
