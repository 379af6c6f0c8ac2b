"""One small bins service for the attacks that any service would do for."""

from __future__ import annotations

import pytest

from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.live import running


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    publish_tiny(MlflowPublisher(folder), "colours")
    with running(settings_for(folder, journal=folder / "journal.jsonl"), folder) as service:
        yield service
