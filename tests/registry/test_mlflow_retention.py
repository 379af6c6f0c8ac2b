"""What nobody needs goes, with its files; what an alias needs stays, and so does what is young."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST

from pliant.errors import RegistryError
from pliant.registry import mlflow_retention
from pliant.registry.mlflow_find import DIGEST
from pliant.registry.mlflow_retention import DAY, Unneeded, needed_versions, remove, unneeded
from pliant.registry.releases import FORMER
from tests.registry.conftest import BACKBONE

PREFIX = "pliant-tokens-"


MODELS = ("a", "b", "c")
KEYS = st.tuples(st.sampled_from(MODELS), st.integers(1, 4))


@given(
    tags=st.dictionaries(KEYS, st.dictionaries(st.sampled_from(["pliant.x", "pliant.y", "other"]), KEYS), min_size=1),
    aliased=st.sets(KEYS),
    newest=st.integers(1, 3),
    form=st.sampled_from(["number", "object", "digest"]),
)
def test_what_is_needed_is_closed_under_what_its_tags_name(tags, aliased, newest, form):
    def text(key) -> str:
        return {"number": str(key[1]), "object": f'{{"part": {{"{key[0]}": {key[1]}}}}}', "digest": f"{key}"}[form]

    versions = {key: {DIGEST: f"{key}"} | {tag: text(to) for tag, to in known.items()} for key, known in tags.items()}
    aliases = {name: {f"alias{n}": str(n) for m, n in aliased if m == name} for name in MODELS}
    needed = needed_versions(aliases, versions, newest)
    assert {key for key in aliased if key in tags} <= needed
    for name in MODELS:
        assert {(name, n) for n in sorted(n for m, n in tags if m == name)[-newest:]} <= needed
    for key in needed:
        named = {to for tag, to in tags[key].items() if tag.startswith("pliant.")}
        assert {to for to in named if to in tags} <= needed
    reached = set(chain.from_iterable(_reach(key, tags) for key in needed))
    if form != "number":  # a number may be of any model
        roots = aliased | {(m, n) for m, n in tags if n in sorted(n for k, n in tags if k == m)[-newest:]}
        assert (
            needed == set(chain.from_iterable({k, *_reach(k, tags)} for k in roots if k in tags)) and reached <= needed
        )


def _reach(key, tags) -> set:
    seen, waiting = set(), [key]
    while waiting:
        for tag, to in tags[waiting.pop()].items():
            if tag.startswith("pliant.") and to in tags and to not in seen:
                seen.add(to)
                waiting.append(to)
    return seen


# What goes, by hand: a version that is needed and one that is not, in the entities that MLflow gives


NOW = 1_000 * DAY


def version(number: int, source: str, run: str = "r", model_id: str | None = None, days: float = 50) -> SimpleNamespace:
    stamp = 1000 * (NOW - days * DAY)
    return SimpleNamespace(
        version=str(number), source=source, run_id=run, model_id=model_id, tags={}, creation_timestamp=stamp
    )


def logged(model: str, location: str = "", days: float = 50) -> SimpleNamespace:
    stamp = 1000 * (NOW - days * DAY)
    return SimpleNamespace(model_id=model, name=model, artifact_location=location, creation_timestamp=stamp)


def started(run: str, days: float, status: str = "FINISHED") -> SimpleNamespace:
    info = SimpleNamespace(
        run_id=run, run_name=run, start_time=1000 * (NOW - days * DAY), status=status, artifact_uri=""
    )
    return SimpleNamespace(info=info)


class Removing:
    """A client that keeps what is removed; `champion`: the version under the alias, `gone`: models not there."""

    def __init__(self, champion: str = "9", gone: str = "", failure: str = "") -> None:
        self.removed, self._champion, self._gone, self._failure = [], champion, gone, failure

    def get_registered_model(self, name):
        return SimpleNamespace(aliases={"champion": self._champion})

    def get_logged_model(self, model):
        if model == self._gone:
            raise MlflowException("gone", RESOURCE_DOES_NOT_EXIST)
        if self._failure:
            raise MlflowException(self._failure)
        return logged(model)

    def get_run(self, run):
        return started(run, 1)

    def __getattr__(self, name):
        return lambda *ids: self.removed.append((name, *ids))


def removing(monkeypatch, client: Removing, ids: tuple[str, ...], kind: str, served: int | None = None) -> list[tuple]:
    monkeypatch.setattr(mlflow_retention, "_remove_files", lambda address: client.removed.append(("files", address)))
    registry = SimpleNamespace(
        tracking_uri="sqlite:///x.db",
        connect=lambda: client,
        version=lambda name: None if served is None else SimpleNamespace(version=served),
    )
    remove(registry, Unneeded(kind, "it", ids, 0, "old"))
    return client.removed


@pytest.mark.parametrize(("champion", "served"), [("2", None), ("9", 2)])
def test_a_version_that_an_alias_or_the_release_names_by_now_stays(monkeypatch, champion, served):
    assert removing(monkeypatch, Removing(champion), ("a", "2", "m-2"), "version", served) == []


def test_a_model_that_somebody_removed_meanwhile_is_no_failure_and_any_other_failure_is_one(monkeypatch):
    assert removing(monkeypatch, Removing(gone="m-2"), ("m-2",), "model") == []
    assert removing(monkeypatch, Removing(), ("m-2",), "model") == [("delete_logged_model", "m-2"), ("files", "")]
    with pytest.raises(RegistryError, match=r"it could not be removed at .*: ill"):
        removing(monkeypatch, Removing(failure="ill"), ("m-2",), "model")


def test_a_run_whose_files_cannot_be_removed_where_they_are_still_goes(monkeypatch):
    """The stores of some clouds have no way to remove what they hold."""
    client, asked = Removing(), []

    def delete():
        asked.append("delete")
        raise NotImplementedError

    monkeypatch.setattr(
        "mlflow.store.artifact.artifact_repository_registry.get_artifact_repository",
        lambda address: asked.append(address) or SimpleNamespace(delete_artifacts=delete),
    )
    monkeypatch.setattr(Removing, "get_run", lambda self, run: SimpleNamespace(info=SimpleNamespace(artifact_uri="x")))
    remove(
        SimpleNamespace(tracking_uri="sqlite:///x.db", connect=lambda: client), Unneeded("run", "it", ("r1",), 0, "")
    )
    assert client.removed == [("delete_run", "r1")] and asked == ["x", "delete"]


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
}


@pytest.mark.parametrize("tags", TAGS)
def test_a_tag_of_ours_names_versions_by_digest_by_number_or_in_an_object(tags):
    known, named = TAGS[tags]
    keys = [(name, number) for name in "ab" for number in (1, 2, 3)]
    versions = {key: {DIGEST: f"d-{key[0]}{key[1]}"} for key in keys}
    versions["b", 3] = {}  # published by somebody else
    versions["a", 1] |= known
    assert needed_versions({"a": {"champion": "1"}}, versions, 0) == {("a", 1)} | named


class Page(list):
    token = None


class Listing:
    """What MLflow answers of a registry: in pages of two, and only for the questions that are put to it here."""

    def __init__(self, versions, models, runs) -> None:
        self.versions, self.models, self.runs, self.experiment = (
            versions,
            models,
            runs,
            SimpleNamespace(experiment_id="7"),
        )

    @staticmethod
    def _page(items, token) -> Page:
        start = int(token or 0)
        page = Page(items[start : start + 2])
        page.token = str(start + 2) if start + 2 < len(items) else None
        return page

    def search_model_versions(self, wanted, page_token):
        return self._page(self.versions[wanted], page_token)

    def get_experiment_by_name(self, name):
        return self.experiment if name == "pliant-tokens" else None

    def search_logged_models(self, ids, page_token):
        assert ids == ["7"]
        return self._page(self.models, page_token)

    def search_runs(self, ids, run_view_type, page_token):
        assert ids == ["7"] and run_view_type == 1, "what was removed before is not looked at again"
        return self._page(self.runs, page_token)


@pytest.fixture
def listing(tmp_path, monkeypatch):
    """Five versions of a backbone of which the third is champion, a release, a model nobody registered, two runs."""
    monkeypatch.setattr(mlflow_retention.time, "time", lambda: NOW)
    (tmp_path / "m-1").mkdir()
    (tmp_path / "m-1" / "weights").write_bytes(b"123")
    versions = [version(n, (tmp_path / f"m-{n}").as_uri(), run=f"r-{n}") for n in (5, 4, 3, 2, 1)]
    release = version(1, "", run="r-9")
    release.tags = {"pliant.models": f'{{"{BACKBONE}": [2, "d"]}}'}
    client = Listing(
        {f"name='{BACKBONE}'": versions, "name='pliant-release-tokens'": [release]},
        [logged("m-1"), logged("m-0", (tmp_path / "m-1").as_uri()), logged("m-3")],
        [started("r-1", 100), started("r-2", 100), started("r-8", 2, "FAILED")],
    )
    named = [
        SimpleNamespace(name=name, aliases=aliases)
        for name, aliases in ((BACKBONE, {"champion": "3"}), ("pliant-release-tokens", {}), ("pliant-bins-x", {}))
    ]
    registry = SimpleNamespace(
        tracking_uri="sqlite:///x.db",
        experiment="pliant-tokens",
        exists=lambda: True,
        connect=lambda: client,
        models=lambda: named,
    )
    return registry, client


def test_what_can_go_is_listed_with_its_size_and_reason_the_versions_first(listing):
    registry, client = listing
    runs = (
        Unneeded("run", "run r-1", ("r-1",), 0, "older than 90 days, without a version"),
        Unneeded("run", "run r-8", ("r-8",), 0, "failed, published nothing"),
    )
    assert unneeded(registry, PREFIX, 1, 90.0) == (
        Unneeded("version", f"{BACKBONE} version 1", (BACKBONE, "1", "m-1"), 3, "old, without an alias"),
        Unneeded("version", f"{BACKBONE} version 4", (BACKBONE, "4"), 0, "old, without an alias"),
        Unneeded("model", "logged model m-0", ("m-0",), 3, "never registered"),
        *runs,
    )
    client.experiment = None
    assert [item.kind for item in unneeded(registry, PREFIX, 1, 90.0)] == ["version", "version"]


def test_a_prefix_of_no_system_has_no_releases_and_a_registry_that_fails_is_named(listing):
    registry, client = listing
    client.versions = {f"name='{BACKBONE}'": []}
    names = [item.name for item in unneeded(registry, "pliant-tok", 1, 90.0)]
    assert names == ["logged model m-1", "logged model m-0", "logged model m-3", "run r-1", "run r-2", "run r-8"]

    def fail():
        raise MlflowException("ill")

    registry.models = fail
    with pytest.raises(RegistryError, match=r"^the registry could not be looked through at sqlite:///x.db: ill$"):
        unneeded(registry, PREFIX, 1, 90.0)
