"""Whether a stage runs is for the store to say, not for what Prefect remembers; real runs, on a server of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect import flow

from flows import settings
from flows.keys import StageResult, keep, kept
from flows.tasks import cached_stage
from pliant.tokens.artifact import Backbone
from registry import codec
from registry.store import FolderStore
from tests.fixtures.runs import place_in
from tests.fixtures.tokens.samples import tiny_backbone

KEY = "tokens/backbone/0123"


@pytest.fixture
def store(tmp_path, prefect):
    with place_in(tmp_path, prefect):
        yield FolderStore(settings.read().store)


def run(store: FolderStore, seed: int, meanwhile: int | None = None) -> tuple[StageResult, str, bool]:
    """What a flow of one stage returns, which makes a backbone of this seed; its state in Prefect; whether it did any work.

    `meanwhile`: the seed of what another run keeps while it works.
    """
    worked, ended = [], []

    @cached_stage(
        "foundation",
        task_run_name="foundation-{name}",
        on_completion=[lambda _task, run, state: ended.append((run.name, state.name))],
    )
    def foundation(key: str, name: str, store: FolderStore) -> StageResult:
        worked.append(name)
        if meanwhile is not None:
            keep(store, key, tiny_backbone(meanwhile), {"seed": meanwhile})
        return keep(store, key, tiny_backbone(seed), {"seed": seed, "rates": (0.1, 0.2)})

    @flow
    def system() -> StageResult:
        return foundation(KEY, "things", store)

    result = system()
    [(name, state)] = ended
    assert name == "foundation-things"
    return result, state, bool(worked)


def test_a_stage_whose_key_the_store_keeps_is_skipped_whoever_has_made_it(store):
    """A worker whose Prefect had never seen the key once trained anew, and overwrote what others had read."""
    made = keep(store, KEY, tiny_backbone(0), {"seed": 0})
    result, state, worked = run(store, seed=1)
    assert (result, state, worked) == (made, "Cached", False)
    assert store.load(Backbone, KEY, made["digest"]).source == "random weights, seed 0"


def test_a_stage_is_run_once_and_again_only_when_its_result_has_gone(store):
    first, state, worked = run(store, seed=0)
    assert (state, worked) == ("Completed", True)
    assert first == {"key": KEY, "digest": codec.digest(store.path(KEY)), "notes": {"seed": 0, "rates": [0.1, 0.2]}}
    assert run(store, seed=1) == (first, "Cached", False)
    store.remove(KEY)
    other, state, worked = run(store, seed=1)
    assert (other["notes"]["seed"], state, worked) == (1, "Completed", True)


def test_of_two_runs_that_make_the_same_at_once_both_go_on_with_what_is_kept_first(store):
    result, state, worked = run(store, seed=1, meanwhile=2)
    assert (result["notes"], state, worked) == ({"seed": 2}, "Completed", True)
    assert result == kept(store, KEY)
    assert store.load(Backbone, KEY, result["digest"]).source == "random weights, seed 2"


def test_prefect_keeps_no_result_beside_the_stores(store):
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

    storage = Path(PREFECT_LOCAL_STORAGE_PATH.value())
    before = sorted(storage.rglob("*"))
    assert run(store, seed=0)[2]
    assert sorted(storage.rglob("*")) == before
