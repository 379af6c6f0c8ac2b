"""Releases of the MLflow registry, and moves between them, in front of a client in memory that notes every write."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.exceptions import MlflowException

from pliant.errors import RegistryError, UnreachableError
from pliant.registry import codec, releases
from pliant.registry import mlflow_switch as switching
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import Published
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.mlflow_client import RELEASES, A, B, Client, two_models


@pytest.fixture
def client(monkeypatch):
    return two_models(monkeypatch)


def aliases_of(client):
    """The aliases that were moved, and when the lock was held."""
    return [write for write in client.writes if not write[0].startswith("pliant.")]


REGISTRY = MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))
C, NOW, AT = "pliant-bins-c", "2026-11-27T00:10:00+00:00", "2026-11-27 00:10 UTC"


@pytest.fixture
def registry(client):
    return REGISTRY


def whole(monkeypatch):
    """Whatever is asked for is unaltered, and happens at the same moment."""
    monkeypatch.setattr(MlflowRegistry, "intact", lambda self, published: True)
    monkeypatch.setattr(releases, "now_text", lambda: NOW)


def test_a_release_is_written_then_committed_and_only_then_the_models_own_aliases_follow_in_order(registry, client):
    registry.commit({A: 2})
    client.writes.clear()
    registry.commit({B: 3, A: 3})
    assert aliases_of(client) == [
        ("locked", "bins"),
        ("version", RELEASES, 2),
        ("checked",),
        ("previous", RELEASES, "1"),
        ("champion", RELEASES, "2"),
        ("previous", B, "1"),
        ("champion", B, "3"),
        ("previous", A, "2"),
        ("champion", A, "3"),
    ]
    assert registry.release("bins").former == 1 and registry.release("bins", 1).state == "left"


def test_a_release_keeps_the_configuration_that_made_each_task_also_where_nothing_else_has_changed(registry, client):
    registry.commit({A: 2}, kept={A: '{"a": 1}'})
    registry.commit({B: 2})
    assert registry.release("bins").configurations == {A: '{"a": 1}'}
    assert registry.commit({B: 2}, kept={A: '{"a": 2}'}).number == 2
    assert registry.release("bins").configurations == {A: '{"a": 2}'}
    assert registry.release("bins", 1).configurations == {A: '{"a": 1}'}
    proposed = registry.propose({A: 3}, None, "waiting", "", "", {A: '{"a": 3}'})
    assert registry.release("bins", proposed.number).configurations == {A: '{"a": 3}'}


def test_what_another_publisher_released_meanwhile_is_not_overwritten(registry, client):
    registry.commit({A: 2})

    def other():
        client.before_alias = lambda: None
        registry.commit({B: 2})

    client.before_alias = other
    with pytest.raises(RegistryError, match="another publisher released bins meanwhile: run it again"):
        registry.commit({A: 3})
    assert registry.release("bins").versions == {A: 2, B: 2}


def test_promoting_moves_the_alias_alone_until_there_is_a_release_and_then_makes_one(registry, client):
    registry.promote(A, 2)
    assert aliases_of(client) == [("previous", A, "1"), ("champion", A, "2")] and RELEASES not in client.stored
    registry.commit({B: 2})
    registry.promote(A, 3)
    assert registry.release("bins").versions == {A: 3, B: 2}
    client.writes.clear()
    registry.promote(A, 1, "trial")
    assert client.writes == [("trial", A, "1")], "another alias is no release"


def test_what_is_missing_is_said_with_what_there_is(registry, client):
    with pytest.raises(RegistryError, match=f"there is no {A} version 9 to release"):
        registry.commit({A: 9})
    assert client.writes == [("locked", "bins")], "and nothing is written"
    client.add(C, 1)
    with pytest.raises(RegistryError, match="has no model pliant-bins-x: "):
        registry.fetch("pliant-bins-x")
    with pytest.raises(RegistryError, match=f"{C} has no version under the alias champion; its aliases: none"):
        registry.fetch(C)
    client.aliases[A] |= {"trial": "2"}
    known = r"has no version under the alias best; its aliases: champion \(version 1\), trial \(version 2\)"
    with pytest.raises(RegistryError, match=known):
        registry.fetch(A, "best")
    client.stored[A][1].tags.clear()
    with pytest.raises(RegistryError, match=f"models:/{A}/1 was not published by pliant: it has no tag pliant.digest"):
        registry.fetch(A)


def test_a_version_is_intact_if_its_files_are_those_that_were_published(registry, client, monkeypatch, tmp_path):
    digest = codec.save(some_bins(), tmp_path)
    published = Published(A, 1, digest, "", {})
    where = [tmp_path.as_uri()]
    monkeypatch.setattr(Client, "get_model_version_download_uri", lambda *_: where[0], False)
    monkeypatch.setattr("mlflow.artifacts.download_artifacts", lambda *_: str(tmp_path))
    assert registry.intact(published)
    assert not registry.intact(replace(published, digest="0" * 64))
    assert not registry.intact(replace(published, version=9)), "there is no such version"
    (tmp_path / "artifact.json").write_text("{}")
    assert not registry.intact(published)
    where[0] = "s3://bucket/elsewhere"
    assert registry.intact(published), "files elsewhere are not fetched to see that"


def ill(*_given, **_more):
    raise MlflowException("ill")


FILES = "get_model_version_download_uri"


@pytest.mark.parametrize(
    ("method", "act", "sentence"),
    [
        ("get_registered_model", lambda r: r.release("bins"), "the release of bins could not be looked up"),
        ("search_registered_models", lambda r: r.names(), "the models could not be listed"),
        ("search_model_versions", lambda r: r.numbers(A), f"the versions of {A} could not be listed"),
        ("get_experiment_by_name", lambda r: r.identity(), "the registry's experiment could not be looked up"),
        ("get_model_version", lambda r: r.commit({A: 9}), "bins could not be released"),
        ("set_registered_model_alias", lambda r: r.promote(A, 2), f"{A} version 2 could not be promoted"),
        (FILES, lambda r: r.fetch(A, 1), f"the files of models:/{A}/1 could not be fetched"),
        ("create_run", lambda r: r.run("x").__enter__(), "a run could not be started"),
    ],
)
def test_whatever_the_registry_cannot_do_is_named(registry, client, monkeypatch, method, act, sentence):
    experiment = {"experiment_id": "4", "artifact_location": "s3://models", "creation_time": 123}
    client.experiment = SimpleNamespace(**experiment, tags={"mlflow.experimentKind": "of somebody"})
    monkeypatch.setattr(Client, method, ill, raising=False)
    with pytest.raises(UnreachableError, match=f"^{sentence}.* at sqlite:///registry.db: ill$"):
        act(registry)


@pytest.mark.parametrize("root", ["file:///files", "s3://bucket/files"])
def test_what_lies_elsewhere_is_downloaded_to_a_folder_of_its_own_until_it_is_discarded(
    registry, client, monkeypatch, root
):
    targets = []

    def download(uri, _run, _path, target, tracking_uri):
        assert (uri, tracking_uri) == (f"{root}/artifacts/bundle", registry.tracking_uri)
        targets.append(target)
        return target or "/files/artifacts/bundle"

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", download)
    monkeypatch.setattr(Client, FILES, lambda _self, name, number: root, raising=False)
    folder, published = registry.fetch(A)
    assert published.version == 1 and (targets == [None]) == root.startswith("file")
    assert folder.is_dir() == (targets != [None])
    registry.discard(folder)
    assert not folder.is_dir()


def test_a_database_that_nobody_listens_for_is_named_at_once_without_its_password():
    pytest.importorskip("psycopg")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        uri = f"postgresql://ann:secret@127.0.0.1:{taken.getsockname()[1]}/registry"
        begun = time.monotonic()
        with pytest.raises(UnreachableError) as raised:
            MlflowRegistry(uri, "pliant-bins", Path("x")).identity()
    assert "the registry could not be opened at postgresql://127.0.0.1:" in str(raised.value)
    assert "secret" not in str(raised.value) and "\n" not in str(raised.value)
    assert time.monotonic() - begun < 60, "MLflow itself goes on for 102 s"


@pytest.fixture
def three(registry, monkeypatch):
    """Three releases, the last of which is served."""
    whole(monkeypatch)
    return [registry.commit({A: 1, B: 1}), registry.commit({A: 2}), registry.commit({A: 3, B: 2})]


def test_going_back_is_one_move_of_the_alias_and_then_the_models_aliases_and_the_notes_follow(three, registry, client):
    client.writes.clear()
    left, served = switching.switch(registry, "bins", 2, "it was slow", switching.TAKEN_BACK)
    assert (left.number, served.number) == (3, 2)
    assert aliases_of(client)[1:4] == [("checked",), ("previous", RELEASES, "3"), ("champion", RELEASES, "2")]
    assert registry.release("bins").number == 2 and registry.versions("pliant-bins-") == {A: 2, B: 1}
    assert registry.aliases("pliant-bins-") == {A: 2, B: 1}
    bad = registry.release("bins", 3)
    assert (bad.state, bad.reason, bad.since) == ("taken back", "it was slow", NOW)
    assert registry.release("bins").state == "" and registry.release("bins").since == NOW


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
    client.writes.clear()
    switching.finish(registry, "bins", "again")
    assert client.writes == [("locked", "bins")], "nothing is missing"


@given(st.lists(st.integers(1, 3), max_size=6))
def test_after_any_moves_exactly_the_last_release_is_served_and_each_is_as_it_was_written(moves):
    with pytest.MonkeyPatch.context() as monkeypatch:
        two_models(monkeypatch)
        whole(monkeypatch)
        registry = REGISTRY
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
