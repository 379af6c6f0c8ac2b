"""Groups of processes that start at once, where how they are started is not what is tested."""

from __future__ import annotations

from multiprocessing import forkserver, get_context

import pytest


@pytest.fixture(scope="session")
def started_quickly():
    """Have groups fork their processes from a server that has imported everything, as `spawn` takes seconds each.

    That a group works with `spawn`: tests/serving/packing/test_service.py, and the first one that is killed in
    test_runtime_parallel.py.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["pliant.packing.engine.parallel"])
    forkserver.ensure_running()  # now: a test may look for folders that are left behind, and its own stays
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pliant.packing.engine.parallel.get_context", lambda _: context)
        yield
