"""Loads that `pliant simulate cascade` takes, and what it shows of them."""

from __future__ import annotations

import pytest

from pliant.cascade.plan import PlanConfig
from pliant.flows.cascade.champions import Record, Saved
from pliant.flows.champions import RECORD, record_to_json
from pliant.flows.settings import read
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.registry.names import CASCADE_TASK
from pliant.registry.store import FolderStore
from tests.fixtures.cascade.tiny import some_cascade, some_outputs
from tests.fixtures.commands import KINDS, columns, refused, shown, write_trace

COMMAND = ["simulate", "cascade", "--load"]
CANDIDATES = ["default", "single"]


@pytest.fixture
def champion(registry) -> FolderStore:
    """A task in the registry, and the store with its outputs on the test split."""
    outputs, store = some_outputs(), FolderStore(read().store)
    saved = Saved("cascade/test", store.save("cascade/test", outputs))
    record = Record(PlanConfig(), LatencyConfig(), 1, saved, saved)
    registry.publish(CASCADE_TASK + "things", some_cascade(outputs), tags={RECORD: record_to_json(record)})
    return store


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_of_a_recorded_trace_is_simulated(kind, champion, tmp_path, capsys):
    load = write_trace(tmp_path, kind, {"seconds": [907.0, 905.0, 905.5], "note": [1, 2, 3]})
    table = columns(shown([*COMMAND, load], capsys))
    assert table["candidate"] == CANDIDATES
    assert (table["requests"], table["in time"]) == (["3"] * 2, ["100.0%"] * 2)


def test_the_reference_load_is_simulated_for_the_candidate_that_is_named(champion, capsys):
    table = columns(shown([*COMMAND, "reference", "--candidate", "single"], capsys))
    assert table["candidate"] == ["single"] and int(table["requests"][0]) > 100


@pytest.mark.parametrize("load", ["nonsense", "trace.parquet", "poisson:1e9:1e9"])
def test_an_unknown_load_is_refused_with_a_sentence(load, champion, capsys):
    assert f"load is {load}, but must be" in refused([*COMMAND, load], capsys)


def test_without_its_saved_outputs_the_command_says_what_to_do(champion, capsys):
    for file in champion.path("cascade/test").iterdir():
        file.unlink()
    assert "run `pliant train cascade` again" in refused([*COMMAND, "reference"], capsys)
