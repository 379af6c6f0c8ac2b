"""A service of bins counts what it answers, and nothing at all where it is not watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.bins.in_process import QUIET, serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry

STREAM = "colours"


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_a_service_counts_its_answers_only_where_it_is_watched(tmp_path: Path, seconds: float) -> None:
    publish_tiny(registry := FolderRegistry(tmp_path), STREAM)
    with serving(registry, QUIET.replace(watch_seconds=seconds, home=tmp_path / "home")) as service:
        answer = service.wait(service.posting(f"/{STREAM}/predict", {"inputs": "a red sign"}))
        assert answer.status_code == 200, answer.text
        counts = service.assembly.refresher.drift.take().get(-1, {})
        assert (f"tokens of {STREAM}" in counts) == (seconds > 0) == bool(counts)
