"""The stack of real servers: as much of it as there are programs for on this machine."""

from __future__ import annotations

import pytest

from benchmarks.harness import Context, Skipped
from pliant.progress import silent
from qa.stack.programs import program
from qa.stack.whole import whole

pytestmark = pytest.mark.slow


def test_schedules_make_two_versions_on_postgres_that_are_served_behind_key_and_tls(tmp_path, monkeypatch):
    for name in ("initdb", "postgres"):
        try:
            program(name)
        except Skipped as error:
            pytest.skip(str(error))
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    class Stage:
        def __enter__(self):
            return silent

        def __exit__(self, *_error):
            return None

    targets, details = whole(Context(True, lambda _name: Stage()))
    assert details["wrong"] == [] and details["silent"] == []
    assert all(target.met for target in targets[1:])  # the first is of seconds, which are the machine's
