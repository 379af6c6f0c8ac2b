"""The worlds of the attacks: small services that live as long as a module's tests, with keys of tenants or without."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from qa.targets import make_keys
from qa.worlds import served


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Starts a service of a system, with a key for each tenant in `roles`; gives both."""
    with ExitStack() as services:

        def start(system, roles: Mapping = {}, limits: Mapping = {}, **settings):
            folder = tmp_path_factory.mktemp("attacked")
            if roles:
                settings["keys_file"] = folder / "keys.json"
            keys = make_keys(folder / "keys.json", roles, limits)
            return services.enter_context(served(system, folder, **settings)), keys

        yield start


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    with served("bins", folder, journal=folder / "journal.jsonl") as service:
        yield service


@pytest.fixture(scope="module")
def tokens(serve):
    return serve("tokens")[0]
