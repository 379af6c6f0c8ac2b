"""One process runs plans itself, several share the model, and none is refused."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.packing.engine import executor as module
from pliant.packing.engine import parallel
from pliant.packing.scheduling.request import Memory

MEMORY = Memory(4, 16)


@pytest.fixture
def started(monkeypatch):
    """How each kind of executor was started, in place of the executors."""
    monkeypatch.setattr(module, "local_engine", lambda *given: ("alone", *given))
    monkeypatch.setattr(module, "load_generator", lambda generator, device: f"{generator} on {device}")
    monkeypatch.setattr(parallel, "ParallelExecutor", lambda *given, **more: ("shared", *given, more))
    return lambda sampling, processes: module.executor("model", MEMORY, sampling, 0.5, "cpu", processes, "grammars")


@pytest.mark.parametrize("sampling", [True, False])
def test_one_process_loads_the_model_and_draws_tokens_only_if_asked_to(started, sampling):
    assert started(sampling, 1) == ("alone", "model on cpu", MEMORY, sampling, 0.5, "grammars")


def test_several_processes_share_the_model(started):
    shared = started(True, 2)
    assert shared == ("shared", "model", MEMORY, True, 0.5, "grammars", {"processes": 2, "device": "cpu"})


@pytest.mark.parametrize("processes", [0, -1])
def test_less_than_one_process_is_refused(started, processes):
    with pytest.raises(InputError, match=f"processes is {processes}, but must be at least 1"):
        started(True, processes)
