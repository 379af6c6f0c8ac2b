"""What nobody needs goes, with its files; what an alias needs stays, and so does what is young."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pliant.registry import mlflow_retention
from pliant.registry.mlflow_client import DIGEST
from pliant.registry.mlflow_retention import DAY, needed_versions, remove, unneeded
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.releases import FORMER
from tests.fixtures.light_mlflow import lay_database, light, light_model
from tests.registry.conftest import BACKBONE, TASK, publish_all

PREFIX = "pliant-tokens-"

TAGS = {
    "a digest": ({"pliant.level": "d-a2"}, {("a", 2)}),
    "a digest in a tag of somebody else": ({"level": "d-a2"}, set()),
    "a number": ({"pliant.level": "2"}, {("a", 2), ("b", 2)}),
    "the release before": ({FORMER: "2"}, set()),
    "a release": ({"pliant.models": '{"a": [2, "d"], "b": [], "c": [1]}'}, {("a", 2)}),
    "numbers as texts, deep within": ({"pliant.x": '{"part": {"more": {"b": "2"}}}'}, {("b", 2)}),
    "what is no number": ({"pliant.x": '{"a": "x", "b": 2.0}'}, set()),
    "what is no version": ({"pliant.x": '{"a": 9}'}, set()),
    "a text that only looks like an object": ({"pliant.x": "{a}"}, set()),
    "a list": ({"pliant.x": '["a", 2]'}, set()),
    "one that names others itself, in a circle": ({"pliant.level": "d-a3"}, {("a", 3), ("b", 1)}),
}


@pytest.mark.parametrize("tags", TAGS)
def test_a_tag_of_ours_names_versions_by_digest_by_number_or_in_an_object(tags):
    known, named = TAGS[tags]
    keys = [(name, number) for name in "ab" for number in (1, 2, 3)]
    versions = {key: {DIGEST: f"d-{key[0]}{key[1]}"} for key in keys}
    versions["b", 3] = {}  # published by somebody else
    versions["a", 3] |= {"pliant.level": "d-b1"}
    versions["b", 1] |= {"pliant.level": "d-a3"}
    versions["a", 1] |= known
    assert needed_versions({"a": {"champion": "1"}}, versions, 0) == {("a", 1)} | named


def test_the_newest_are_needed_whatever_names_them():
    versions = {(name, number): {} for name in "ab" for number in (1, 2, 3, 10)}
    for newest, numbers in ((0, ()), (1, (10,)), (2, (3, 10)), (9, (1, 2, 3, 10))):
        assert needed_versions({}, versions, newest) == {(name, number) for name in "ab" for number in numbers}


@pytest.fixture
def old(tmp_path, shelf, monkeypatch):
    """A registry of a hundred days ago, with a release, a second one that was not promoted, and a run that failed."""
    registry = MlflowRegistry(lay_database(tmp_path / "mlflow.db"), "pliant-tokens", tmp_path / "artifacts")
    with light():
        publish_all(registry, shelf)
    with light(), registry.run("refused") as run:
        for name in ("backbone", "task"):
            registry.publish(run, shelf.package(name, f"models:/{BACKBONE}/2"))
    with pytest.raises(RuntimeError, match="power"), registry.run("failed") as run:
        light_model(run, shelf.package("backbone"), {})
        raise RuntimeError("power")
    now = time.time
    monkeypatch.setattr(mlflow_retention.time, "time", lambda: now() + 100 * DAY)
    return registry


def clean(registry: MlflowRegistry, newest: int = 1, days: float = 90.0) -> list[str]:
    items = unneeded(registry, PREFIX, newest, days)
    for item in items:
        remove(registry, item)
    return [item.name for item in items]


def test_versions_beyond_the_newest_go_unless_an_alias_has_them_and_the_release_can_still_be_fetched(old):
    client = MlflowClient(old.tracking_uri, old.tracking_uri)
    for name in (BACKBONE, TASK):  # the first versions are the champions, so the second are newer and not needed
        client.create_model_version(name, client.get_model_version(name, "2").source, tags={DIGEST: "x"})
    names = clean(old)
    assert {f"{BACKBONE} version 2", f"{TASK} version 2"} <= set(names)
    assert f"{BACKBONE} version 1" not in names and f"{TASK} version 1" not in names
    folder, published = old.fetch(TASK)
    assert published.version == 1 and (folder / "artifact.json").is_file()
    assert old.numbers(TASK) == [1, 3]
    assert (old.fetch(BACKBONE, 1)[0] / "artifact.json").is_file()
    source = Path(client.get_model_version(TASK, "3").source.removeprefix("file://"))  # it was that of version 2 too
    assert list(source.rglob("artifact.json"))


def test_nothing_that_is_younger_than_a_day_goes(tmp_path, shelf):
    registry = MlflowRegistry(lay_database(tmp_path / "mlflow.db"), "pliant-tokens", tmp_path / "artifacts")
    for _ in range(3):
        with light(), registry.run("refused") as run:
            registry.publish(run, shelf.package("backbone"))
    with pytest.raises(RuntimeError), registry.run("failed"):
        raise RuntimeError
    assert unneeded(registry, PREFIX, 1, 1.0) == ()


def test_what_the_served_release_names_stays_and_former_releases_go(old, monkeypatch):
    client = MlflowClient(old.tracking_uri, old.tracking_uri)
    for _ in range(3):  # releases of versions 1 and 2 in turn, the last one of version 1
        old.commit({TASK: 2})
        old.commit({TASK: 1})
    client.create_model_version(TASK, client.get_model_version(TASK, "2").source, tags={DIGEST: "x"})
    client.delete_registered_model_alias(TASK, "champion")  # the release alone names it
    releases, now = old.numbers("pliant-release-tokens"), time.time()
    monkeypatch.setattr(mlflow_retention.time, "time", lambda: now + 100 * DAY)
    names = clean(old)
    assert f"{TASK} version 1" not in names
    assert old.version(TASK).version == 1 and (old.fetch(TASK)[0] / "artifact.json").is_file()
    kept = old.numbers("pliant-release-tokens")
    assert kept[-1] == releases[-1] and len(kept) <= 2 < len(releases)
