"""Going back and forth between releases, and challengers, in front of a client in memory that notes every write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import RegistryError
from pliant.registry import mlflow_switch as switching
from pliant.registry import releases
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.mlflow_client import RELEASES, A, B, two_models


def patched(monkeypatch, whole=True):
    client = two_models(monkeypatch, note_lock=False)
    monkeypatch.setattr(MlflowRegistry, "intact", lambda self, published: whole)
    monkeypatch.setattr(releases, "now_text", lambda: "2026-11-27T00:00:00+00:00")
    return client


@pytest.fixture
def client(monkeypatch):
    """Two models with three versions each, the first of which are champions."""
    return patched(monkeypatch)


@pytest.fixture
def registry(client):
    return MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))


@pytest.fixture
def three(registry):
    """Three releases, the last of which is served."""
    return [registry.commit({A: 1, B: 1}), registry.commit({A: 2}), registry.commit({A: 3, B: 2})]


def test_going_back_is_one_move_of_the_alias_and_then_the_models_aliases_and_the_notes_follow(three, registry, client):
    client.writes.clear()
    left, served = switching.switch(registry, "bins", 2, "it was slow", switching.TAKEN_BACK)
    assert (left.number, served.number) == (3, 2)
    assert client.writes[:2] == [("previous", RELEASES, "3"), ("champion", RELEASES, "2")]
    assert registry.release("bins").number == 2 and registry.versions("pliant-bins-") == {A: 2, B: 1}
    assert registry.aliases("pliant-bins-") == {A: 2, B: 1}
    bad = registry.release("bins", 3)
    assert (bad.state, bad.reason, bad.since) == ("taken back", "it was slow", "2026-11-27T00:00:00+00:00")
    assert registry.release("bins").state == "" and registry.release("bins").since == "2026-11-27T00:00:00+00:00"


def test_what_cannot_be_is_refused_with_a_sentence(three, registry, client, monkeypatch):
    before = registry.release("bins")
    with pytest.raises(RegistryError, match="bins has no release 9; there are: 3, 2, 1"):
        switching.switch(registry, "bins", 9, "")
    with pytest.raises(RegistryError, match="release 3 of bins is served already"):
        switching.switch(registry, "bins", 3, "")
    with pytest.raises(RegistryError, match="cascade has no release that is served: run `pliant train cascade` first"):
        switching.switch(registry, "cascade", 1, "")
    del client.stored[A][2]
    with pytest.raises(RegistryError, match=f"release 2 of bins is not whole: version 2 of {A} is gone"):
        switching.switch(registry, "bins", 2, "")
    monkeypatch.setattr(MlflowRegistry, "intact", lambda self, published: published.name != B)
    with pytest.raises(RegistryError, match=f"release 1 of bins is not whole: version 1 of {B} is gone or was altered"):
        switching.switch(registry, "bins", 1, "")
    assert registry.release("bins") == before


def test_there_is_nothing_to_go_back_to_from_the_first_release_or_from_one_whose_former_is_gone(
    three, registry, client
):
    del client.stored[RELEASES][2]
    with pytest.raises(RegistryError, match="release 2 of bins is not in the registry any more: name another one"):
        switching.former_of(registry, "bins")
    switching.switch(registry, "bins", 1, "bad")
    with pytest.raises(RegistryError, match="release 1 of bins replaced none: there is nothing to go back to"):
        switching.former_of(registry, "bins")
    with pytest.raises(RegistryError, match="cascade has no release"):
        switching.former_of(registry, "cascade")


def test_a_challenger_is_a_release_that_nobody_serves_and_is_written_once(three, registry):
    proposed = registry.propose({A: 1}, None, "waiting", "passed", "**figures**")
    assert (proposed.number, proposed.former, proposed.versions) == (4, 3, {A: 1, B: 2})
    assert registry.release("bins").number == 3 and registry.aliases("pliant-bins-") == {A: 3, B: 2}
    assert registry.release("bins", "challenger").state == "waiting"
    registry.promote(A, 2, "challenger")
    assert registry.version(A, "challenger").version == 2, "a model's own challenger is its own alias"
    assert registry.propose({A: 1}, None, "waiting", "again", "").number == 4
    assert registry.propose({A: 2}, None, "refused", "other", "").number == 5
    assert switching.aliases(registry, "bins") == {"champion": 3, "previous": 2, "challenger": 5}


def test_a_release_on_trial_has_the_alias_of_its_stage_until_it_is_over(three, registry):
    proposed = registry.propose({A: 1}, None, "waiting", "passed", "")
    switching.label(registry, proposed, switching.SHADOW)
    assert switching.aliases(registry, "bins")["shadow"] == 4
    switching.label(registry, proposed, switching.CANARY)
    assert switching.aliases(registry, "bins") == {"champion": 3, "previous": 2, "challenger": 4, "canary": 4}
    switching.label(registry, proposed, None)
    assert "canary" not in switching.aliases(registry, "bins")
    switching.label(registry, proposed, switching.CANARY)
    switching.switch(registry, "bins", 4, "it was no worse")
    assert switching.aliases(registry, "bins") == {"champion": 4, "previous": 3}


def test_a_challenger_that_was_written_without_its_alias_gets_it_and_is_not_written_twice(three, registry, client):
    proposed = registry.propose({A: 1}, None, "waiting", "passed", "")
    del client.aliases[RELEASES]["challenger"]  # as if its process had been killed before
    assert registry.propose({A: 1}, None, "waiting", "passed", "") == proposed
    assert switching.aliases(registry, "bins")["challenger"] == 4
    del client.aliases[RELEASES]["challenger"]
    assert registry.propose({A: 1}, None, "refused", "it is slower", "").number == 5, "that is another decision"


def test_what_a_killed_switch_left_is_finished_and_nothing_else_is_touched(three, registry, client):
    proposed = registry.propose({A: 1}, None, "waiting", "passed", "")
    assert switching.unfinished(registry, "bins") == []
    switching.label(registry, proposed, switching.CANARY)
    switching.note(registry, proposed, switching.CANARY, "20%")
    assert switching.unfinished(registry, "bins") == [], "it is tried"
    client.aliases[RELEASES] |= {"previous": "3", "champion": "4"}  # as if `switch` had been killed after its commit
    assert [release.number for release in switching.unfinished(registry, "bins")] == [4]
    switching.finish(registry, "bins", "no worse")
    assert switching.aliases(registry, "bins") == {"champion": 4, "previous": 3}
    assert registry.aliases("pliant-bins-") == {A: 1, B: 2}
    served, left = registry.release("bins"), registry.release("bins", 3)
    assert (served.state, served.reason, left.state, left.reason) == ("", "no worse", "left", "no worse")
    assert switching.unfinished(registry, "bins") == []
    writes = list(client.writes)
    switching.finish(registry, "bins", "again")
    assert client.writes == writes, "nothing is missing"


@given(st.lists(st.integers(1, 3), max_size=6))
def test_after_any_moves_exactly_the_last_release_is_served_and_each_is_as_it_was_written(moves):
    with pytest.MonkeyPatch.context() as monkeypatch:
        patched(monkeypatch)
        registry = MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))
        written = {release.number: release for release in (registry.commit({A: n}) for n in (1, 2, 3))}
        served = 3
        for number in moves:
            if number == served:
                with pytest.raises(RegistryError, match="served already"):
                    switching.switch(registry, "bins", number, "r")
            else:
                switching.switch(registry, "bins", number, "r")
            served = number
        assert registry.release("bins") == written[served]
        assert registry.aliases("pliant-bins-") == written[served].versions
        assert {release.number: release for release in switching.history(registry, "bins")} == written
