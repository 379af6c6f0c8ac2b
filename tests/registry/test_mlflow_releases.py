"""Releases and listings of the MLflow registry in front of a client in memory, which notes every write in its order."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, RESOURCE_DOES_NOT_EXIST

from pliant.errors import RegistryError, UnreachableError
from registry import codec, mlflow_store
from registry.mlflow_run import Run
from registry.mlflow_store import DIGEST, MlflowRegistry
from registry.package import Package, Published
from registry.releases import from_version
from tests.fixtures.bins.tiny import some_bins

A, B, RELEASES = "pliant-bins-a", "pliant-bins-encoder-a", "pliant-release-bins"


class Page(list):
    token = ""


class Client:
    """Models with aliases and versions; lists come in pages of two."""

    def __init__(self) -> None:
        self.aliases: dict[str, dict[str, str]] = {}
        self.stored: dict[str, dict[int, SimpleNamespace]] = {}
        self.writes: list[tuple] = []
        self.experiment: SimpleNamespace | None = None
        self.before_alias = lambda: None

    def add(self, name: str, count: int, **aliases: str) -> None:
        self.aliases[name] = dict(aliases)
        tags = [{DIGEST: f"{name}:{number}"} for number in range(1, count + 1)]
        self.stored[name] = {n: self._version(name, n, each) for n, each in enumerate(tags, 1)}

    @staticmethod
    def _version(name, number, tags, source="", run_id=None):
        return SimpleNamespace(name=name, version=str(number), tags=tags, source=source, run_id=run_id)

    def _known(self, condition):
        if not condition:
            raise MlflowException("not there", RESOURCE_DOES_NOT_EXIST)

    def get_registered_model(self, name):
        self._known(name in self.stored)
        return SimpleNamespace(name=name, aliases=self.aliases[name])

    def get_model_version(self, name, number):
        self._known(int(number) in self.stored.get(name, {}))
        return self.stored[name][int(number)]

    def create_registered_model(self, name, description=None):
        if name in self.stored:
            raise MlflowException("there", RESOURCE_ALREADY_EXISTS)
        self.stored[name], self.aliases[name] = {}, {}

    def create_model_version(self, name, source, run_id=None, tags=None):
        number = len(self.stored[name]) + 1
        self.stored[name][number] = self._version(name, number, tags, source, run_id)
        self.writes.append(("version", name, number))
        self.before_alias()
        return self.stored[name][number]

    def set_registered_model_alias(self, name, alias, number):
        self.aliases[name][alias] = number
        self.writes.append((alias, name, number))

    @staticmethod
    def _page(items, token):
        start = int(token or 0)
        page = Page(items[start : start + 2])
        page.token = str(start + 2) if start + 2 < len(items) else None
        return page

    def search_registered_models(self, max_results, page_token):
        return self._page([self.get_registered_model(name) for name in self.stored], page_token)

    def search_model_versions(self, wanted, page_token):
        name = wanted.removeprefix("name='").removesuffix("'")
        return self._page(sorted(self.stored[name].values(), key=lambda version: -int(version.version)), page_token)

    def get_experiment_by_name(self, name):
        return self.experiment

    def get_run(self, run):
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=f"files of {run}"))


@pytest.fixture
def client(monkeypatch):
    """Two models with three versions each, the first of which are champions."""
    client = Client()
    client.add(A, 3, champion="1")
    client.add(B, 3, champion="1")

    @contextmanager
    def locked(_registry, system):
        client.writes.append(("locked", system))
        yield lambda: client.writes.append(("checked",))

    monkeypatch.setattr(MlflowRegistry, "connect", lambda self, create=False: client)
    monkeypatch.setattr(MlflowRegistry, "_locked", locked)
    return client


@pytest.fixture
def registry():
    return MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))


def test_the_first_release_holds_what_was_champion_before_with_the_changes(registry, client):
    released = registry.commit({A: 2})
    assert (released.number, released.former) == (1, None)
    assert released.versions == {A: 2, B: 1}
    assert released.digests == {A: f"{A}:2", B: f"{B}:1"}
    assert from_version("bins", client.stored[RELEASES][1]) == released == registry.release("bins")


def test_a_release_is_written_then_committed_and_only_then_the_models_own_aliases_follow_in_order(registry, client):
    registry.commit({A: 2})
    client.writes.clear()
    registry.commit({B: 3, A: 3})
    assert client.writes == [
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
    assert registry.release("bins").former == 1


def test_the_same_versions_are_no_new_release_but_aliases_that_are_behind_follow(registry, client):
    registry.commit({A: 2})
    client.aliases[A]["champion"] = "1"  # as after a crash between the two
    client.writes.clear()
    assert registry.commit({A: 2}).number == 1
    assert client.writes == [("locked", "bins"), ("previous", A, "1"), ("champion", A, "2")]


def test_a_version_that_is_not_there_cannot_be_released_and_nothing_is_written(registry, client):
    with pytest.raises(RegistryError, match=f"there is no {A} version 9 to release"):
        registry.commit({A: 9})
    assert client.writes == [("locked", "bins")]


def test_a_former_version_that_has_gone_is_left_out_with_a_warning(registry, client, caplog):
    registry.commit({A: 2})
    del client.stored[B][1]
    with caplog.at_level(logging.WARNING, "pliant.registry"):
        assert registry.commit({A: 3}).versions == {A: 3}
    assert f"the release is made without {B}: its version 1 is not in the registry" in caplog.text


def test_models_can_be_left_out_from_now_on(registry, client):
    registry.commit({A: 2})
    released = registry.commit({A: 3}, without=[B])
    assert released.versions == {A: 3} and released.digests == {A: f"{A}:3"}
    assert client.aliases[B] == {"champion": "1"}, "its own alias stays"


def test_what_another_publisher_released_meanwhile_is_not_overwritten(registry, client):
    registry.commit({A: 2})

    def other():
        client.before_alias = lambda: None
        registry.commit({B: 2})

    client.before_alias = other
    with pytest.raises(RegistryError, match="another publisher released bins meanwhile: run it again"):
        registry.commit({A: 3})
    assert registry.release("bins").versions == {A: 2, B: 2}


def test_a_release_names_the_run_that_made_it_and_keeps_the_former_one_without(registry, client):
    registry.commit({A: 2}, SimpleNamespace(client=client, id="r7"))
    assert (registry.release("bins").source, registry.release("bins").run) == ("files of r7", "r7")
    registry.commit({A: 3})
    assert (registry.release("bins").source, registry.release("bins").run) == ("files of r7", "r7")


def test_promoting_moves_the_alias_alone_until_there_is_a_release_and_then_makes_one(registry, client):
    registry.promote(A, 2)
    assert client.writes == [("previous", A, "1"), ("champion", A, "2")] and RELEASES not in client.stored
    registry.commit({B: 2})
    registry.promote(A, 3)
    assert registry.release("bins").versions == {A: 3, B: 2}
    client.writes.clear()
    registry.promote(A, 1, "trial")
    assert client.writes == [("trial", A, "1")], "another alias is no release"


def test_an_alias_that_is_there_already_is_not_moved_and_no_former_champion_is_lost(registry, client):
    registry.promote(A, 2)
    client.writes.clear()
    registry.promote(A, 2)
    assert client.writes == [] and client.aliases[A] == {"champion": "2", "previous": "1"}


def test_a_version_that_is_not_there_is_not_promoted(registry, client):
    with pytest.raises(RegistryError, match=f"there is no {A} version 7"):
        registry.promote(A, 7)
    assert client.aliases[A] == {"champion": "1"}


def test_a_release_is_found_by_alias_and_number_or_there_is_none(registry, client):
    assert registry.release("bins") is None and registry.release("bins", 1) is None
    registry.commit({A: 2})
    registry.commit({A: 3})
    assert registry.release("bins", 1).versions[A] == 2
    assert registry.release("bins", "previous").versions[A] == 2
    assert registry.release("bins", 3) is None and registry.release("bins", "trial") is None


def test_the_release_decides_which_versions_are_shown_whatever_the_models_own_aliases_say(registry, client):
    registry.commit({A: 2})
    client.aliases[A]["champion"] = "3"
    assert registry.versions("pliant-bins-") == {A: 2, B: 1}
    assert registry.versions("pliant-bins-encoder-") == {B: 1}
    assert registry.version(A).version == 2 and registry.aliased(A, "champion").version == 3
    assert registry.aliases("pliant-bins-") == {A: 3, B: 1}


def test_a_model_that_the_release_does_not_name_is_shown_by_its_own_alias(registry, client):
    registry.commit({A: 2}, without=[B])
    assert registry.version(B).version == 1
    assert registry.versions("pliant-bins-") == {A: 2}


def test_lists_go_on_to_their_last_page(registry, client):
    for name in ("pliant-bins-c", "other", "pliant-bins-d"):
        client.add(name, 5)
    assert registry.names("pliant-bins-") == [A, "pliant-bins-c", "pliant-bins-d", B]
    assert len(registry.models()) == 5
    assert registry.numbers("pliant-bins-c") == [1, 2, 3, 4, 5]
    assert registry.numbers(A) == [1, 2, 3]


def test_what_is_missing_is_said_with_what_there_is(registry, client):
    client.add("pliant-bins-c", 1)
    with pytest.raises(RegistryError, match="has no model pliant-bins-x: "):
        registry.fetch("pliant-bins-x")
    with pytest.raises(RegistryError, match="pliant-bins-c has no version under the alias champion; its aliases: none"):
        registry.fetch("pliant-bins-c")
    client.aliases[A] |= {"trial": "2"}
    known = r"has no version under the alias best; its aliases: champion \(version 1\), trial \(version 2\)"
    with pytest.raises(RegistryError, match=known):
        registry.fetch(A, "best")
    client.stored[A][1].tags.clear()
    with pytest.raises(RegistryError, match=f"models:/{A}/1 was not published by pliant: it has no tag pliant.digest"):
        registry.fetch(A)


def test_a_registry_is_told_from_another_by_its_experiment(registry, client):
    assert registry.identity() == ""
    client.experiment = SimpleNamespace(experiment_id="4", creation_time=123)
    first = registry.identity()
    client.experiment = SimpleNamespace(experiment_id="4", creation_time=124)
    assert first != registry.identity() != ""
    client.experiment = SimpleNamespace(experiment_id="5", creation_time=123)
    assert first != registry.identity()


def test_only_that_a_thing_is_missing_means_none(registry, client, monkeypatch):
    def ill(_name):
        raise MlflowException("ill")

    monkeypatch.setattr(client, "get_registered_model", ill)
    with pytest.raises(RegistryError, match=f"{A} could not be looked up at .*: ill"):
        registry.aliased(A, "champion")


@pytest.mark.parametrize(
    ("uri", "location"), [("sqlite:///registry.db", Path("artifacts").absolute().as_uri()), ("http://host:5000", None)]
)
def test_a_new_experiment_keeps_its_files_under_the_root_unless_a_server_has_a_place_of_its_own(
    client, monkeypatch, uri, location
):
    created = []
    monkeypatch.setattr(
        Client,
        "create_experiment",
        lambda _, name, artifact_location: created.append((name, artifact_location)) or 7,
        False,
    )
    registry = MlflowRegistry(uri, "pliant-bins", Path("artifacts"))
    registry.create()
    assert created == [("pliant-bins", location)]
    client.experiment = SimpleNamespace(experiment_id=3)
    registry.create()
    assert len(created) == 1 and registry._experiment(client) == "3"


def test_a_version_is_intact_if_its_files_are_those_that_were_published(registry, client, monkeypatch, tmp_path):
    digest = codec.save(some_bins(), tmp_path)
    published = Published(A, 1, digest, "", {})
    where = [tmp_path.as_uri()]
    monkeypatch.setattr(Client, "get_model_version_download_uri", lambda *_: where[0], False)
    monkeypatch.setattr(MlflowRegistry, "_download", lambda *_: tmp_path)
    assert registry.intact(published)
    assert not registry.intact(replace(published, digest="0" * 64))
    assert not registry.intact(replace(published, version=9)), "there is no such version"
    (tmp_path / "artifact.json").write_text("{}")
    assert not registry.intact(published)
    where[0] = "s3://bucket/elsewhere"
    assert registry.intact(published), "files elsewhere are not fetched to see that"


def test_a_system_is_described_by_the_model_of_its_releases_and_is_one_at_a_time(registry, client, monkeypatch):
    described, create = {}, client.create_registered_model

    def note(name, description=None):
        described[name] = description
        create(name, description)

    monkeypatch.setattr(client, "create_registered_model", note)
    registry.commit({A: 2})
    about = "Releases of bins: each names the versions that are served together. Its alias champion is what is served."
    assert described == {RELEASES: about}
    with pytest.raises(ValueError, match="unpack"):
        registry.commit({A: 3}, without=["pliant-tokens-task-a"])
    assert registry.release("bins").versions == {A: 2, B: 1}


def ill(*_given, **_more):
    raise MlflowException("ill")


@pytest.mark.parametrize(
    ("method", "act", "sentence"),
    [
        ("get_registered_model", lambda r: r.release("bins"), "the release of bins could not be looked up"),
        ("get_registered_model", lambda r: r.fetch("foreign"), "foreign could not be looked up"),
        ("search_registered_models", lambda r: r.names(), "the models could not be listed"),
        ("search_model_versions", lambda r: r.numbers(A), f"the versions of {A} could not be listed"),
        ("get_experiment_by_name", lambda r: r.identity(), "the registry's experiment could not be looked up"),
        ("get_model_version", lambda r: r.fetch(A, 9), f"there is no {A} version 9"),
        ("get_model_version", lambda r: r.commit({A: 9}), "bins could not be released"),
        ("create_registered_model", lambda r: r.commit({A: 2}), "bins could not be released"),
        ("set_registered_model_alias", lambda r: r.promote(A, 2), f"{A} version 2 could not be promoted"),
        (
            "get_model_version_download_uri",
            lambda r: r.intact(Published(A, 1, "", f"models:/{A}/1", {})),
            f"the files of models:/{A}/1 could not be looked up",
        ),
        (
            "get_model_version_download_uri",
            lambda r: r.fetch(A, 1),
            f"the files of models:/{A}/1 could not be fetched",
        ),
        ("create_run", lambda r: r.run("x").__enter__(), "a run could not be started"),
        ("create_model_version", lambda r: r.publish(Run(r.connect(), "", "r", "e"), packed()), f"{A} could not be"),
    ],
)
def test_whatever_the_registry_cannot_do_is_named(registry, client, monkeypatch, method, act, sentence):
    client.experiment = SimpleNamespace(experiment_id="4", creation_time=123)
    monkeypatch.setattr(mlflow_store, "log_model", logged_at("files"))
    monkeypatch.setattr(codec, "kind", lambda folder: "bins-plan")
    monkeypatch.setattr(codec, "digest", lambda folder: "d")
    monkeypatch.setattr(Client, method, ill, raising=False)
    with pytest.raises(UnreachableError, match=f"^{sentence}.* at sqlite:///registry.db: ill$"):
        act(registry)


def packed() -> Package:
    return Package(A, Path("bundle"), {}, {}, tags={"pliant.data": 7})


def logged_at(location: str):
    return lambda run, package, tags: SimpleNamespace(artifact_location=location, model_id="m-1")


def test_what_is_published_is_the_next_version_of_its_model_with_all_tags_as_texts(registry, client, monkeypatch):
    given, create = [], client.create_model_version

    def note(name, source, run_id=None, tags=None, model_id=None):
        given.append((name, source, run_id, model_id))
        return create(name, source, run_id, tags)

    def log(run, package, tags):
        given.append((run.id, package.name, dict(tags)))
        return SimpleNamespace(artifact_location="file:///files", model_id="m-1")

    tags = {"pliant.data": "7", "pliant.digest": "d1", "pliant.kind": "bins-plan"}
    monkeypatch.setattr(client, "create_model_version", note)
    monkeypatch.setattr(mlflow_store, "log_model", log)
    monkeypatch.setattr(codec, "kind", lambda folder: {Path("bundle"): "bins-plan"}[folder])
    monkeypatch.setattr(codec, "digest", lambda folder: {Path("bundle"): "d1"}[folder])
    published = registry.publish(Run(client, "", "r-1", "e-1"), packed())
    assert published == Published(A, 4, "d1", f"models:/{A}/4", tags)
    assert given == [("r-1", A, tags), (A, "file:///files", "r-1", "m-1")]
    assert registry.publish(Run(client, "", "r-2", "e-1"), replace(packed(), name="pliant-bins-new")).version == 1


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError, "FAILED"), (KeyboardInterrupt, "FAILED")]
)
def test_a_run_is_started_with_its_tags_as_texts_and_ended_as_its_block_ends(
    registry, client, monkeypatch, error, status
):
    calls = []

    def create_run(_self, experiment, run_name, tags):
        calls.append((experiment, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="r-9"))

    client.experiment = SimpleNamespace(experiment_id=4)
    monkeypatch.setattr(Client, "create_run", create_run, raising=False)
    monkeypatch.setattr(Client, "set_terminated", lambda _self, *given: calls.append(given), raising=False)

    def work():
        with registry.run("train", {"seed": 3}) as run:
            assert (run.id, run.experiment_id, run.uri, run.client) == ("r-9", "4", registry.tracking_uri, client)
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert calls == [("4", "train", {"seed": "3"}), ("r-9", status)]


@pytest.mark.parametrize("root", ["file:///files", "s3://bucket/files"])
def test_what_lies_elsewhere_is_downloaded_to_a_folder_of_its_own_until_it_is_discarded(
    registry, client, monkeypatch, root
):
    asked = []

    def download(uri, _run, _path, target, tracking_uri):
        asked.append((uri, target, tracking_uri))
        return target or "/files/artifacts/bundle"

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", download)
    monkeypatch.setattr(Client, "get_model_version_download_uri", lambda _self, name, number: root, raising=False)
    folder, published = registry.fetch(A)
    ((uri, target, tracking_uri),) = asked
    assert (uri, tracking_uri, published.version) == (f"{root}/artifacts/bundle", registry.tracking_uri, 1)
    assert (target is None) == root.startswith("file")
    assert folder.is_dir() == (target is not None)
    registry.discard(folder)
    assert not folder.is_dir()


def test_a_registry_is_its_address_whatever_was_downloaded_from_it():
    here, there = (MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts")) for _ in range(2))
    assert here == there != replace(there, experiment="other")
    assert "Downloads" not in repr(here) and here.downloads is not there.downloads


def test_only_a_database_file_can_be_not_there_yet(tmp_path):
    registry = MlflowRegistry(f"sqlite:///{tmp_path / 'm.db'}", "e", tmp_path)
    assert not registry.exists()
    (tmp_path / "m.db").touch()
    assert registry.exists() and MlflowRegistry("http://host:5000", "e", tmp_path).exists()


@pytest.mark.parametrize(
    ("uri", "held"), [("sqlite:///m.db", ("file", Path("m.db"), "bins")), ("http://host", ("lease", "client", "bins"))]
)
def test_a_registry_in_a_file_is_locked_beside_it_and_any_other_in_itself(monkeypatch, uri, held):
    monkeypatch.setattr(mlflow_store, "file_lock", lambda *given: ("file", *given))
    monkeypatch.setattr(mlflow_store, "lease", lambda *given: ("lease", *given))
    monkeypatch.setattr(MlflowRegistry, "connect", lambda self: "client")
    assert MlflowRegistry(uri, "e", Path())._locked("bins") == held


@pytest.mark.parametrize("create", [False, True])
def test_a_client_is_made_for_the_address_alone_once_it_was_checked(monkeypatch, create):
    checked = []
    monkeypatch.setattr(mlflow_store, "set_defaults", lambda: checked.append("defaults"))
    monkeypatch.setattr(mlflow_store, "check_reachable", lambda *given: checked.append(given))
    registry = MlflowRegistry("http://127.0.0.1:9", "e", Path())
    made = registry.connect(create=True) if create else registry.connect()
    assert checked == ["defaults", ("http://127.0.0.1:9", create)]
    assert made.tracking_uri == made._registry_uri == "http://127.0.0.1:9"
