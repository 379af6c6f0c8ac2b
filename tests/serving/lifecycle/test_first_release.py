"""A service waits for its first release, where its settings say so, and no longer."""

from __future__ import annotations

import os
import shutil
import sqlite3

import pytest

from pliant.errors import RefusedError, RegistryError
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.lifecycle import first_release
from pliant.serving.lifecycle.first_release import lacking, main, wait
from tests.fixtures.light_mlflow import lay_database

NONE = "no model pliant-bins-* has a version under the alias champion"
UNMADE = "the registry's tables are incomplete, or of another version of MLflow"
PARENT = os.getppid()


class Registry:
    """Of one state: an error, a release (a word), or the models' aliases."""

    def __init__(self, state) -> None:
        self.state = state

    def release(self, system, which):
        assert (system, which) == ("bins", "champion")
        if isinstance(self.state, Exception):
            raise self.state
        return self.state if isinstance(self.state, str) else None

    def aliases(self, prefix, alias):
        assert (prefix, alias) == ("pliant-bins-", "champion")
        return self.state


class Time:
    """Takes the place of the module `time`: only sleeping takes any."""

    def __init__(self) -> None:
        self.now, self.sleeps = 50.0, []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def settings(uri="http://127.0.0.1:9", seconds=60.0):
    return BinsSettings(registry_uri=uri, wait_for_release=seconds)


@pytest.fixture
def registry(monkeypatch):
    """What a look sees in a registry whose tables are complete."""
    registry = Registry({})
    monkeypatch.setattr(first_release, "has_all_tables", lambda uri: True)
    monkeypatch.setattr(first_release, "open_registry", lambda settings: registry)
    return registry


@pytest.fixture
def time(monkeypatch):
    time = Time()
    monkeypatch.setattr(first_release, "time", time)
    return time


def look(monkeypatch, *reasons):
    """Let looks give these reasons, one after the other, and the last one for ever."""
    left = list(reasons)
    monkeypatch.setattr(first_release, "lacking", lambda settings: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize("something", ["a release", {"pliant-bins-a": 1}])
def test_a_release_or_a_model_under_the_alias_is_something_to_serve(something, registry):
    registry.state = something
    assert lacking(settings()) == ""


@pytest.mark.parametrize("error", [RefusedError("a wrong password"), RegistryError("no driver")])
def test_what_another_look_does_not_mend_is_an_error(error, registry):
    registry.state = error
    with pytest.raises(type(error), match=str(error)):
        lacking(settings())


def test_a_database_is_looked_at_without_making_anything_in_it(tmp_path):
    """MLflow makes the tables that it misses, also beside another process that does, and one of them fails then."""
    file, whole = tmp_path / "m.db", tmp_path / "whole.db"
    uri = f"sqlite:///{file}"
    assert lacking(settings(uri)).startswith(f"there is no registry database at {file}") and not file.exists()
    file.touch()
    assert lacking(settings(uri)) == UNMADE and file.stat().st_size == 0
    lay_database(whole)
    shutil.copy(whole, file)
    assert lacking(settings(uri)) == NONE
    with sqlite3.connect(file) as database:
        database.execute("update alembic_version set version_num = 'an older one'")
    assert lacking(settings(uri)) == UNMADE


def test_it_ends_with_the_process_that_started_it(time, monkeypatch):
    look(monkeypatch, NONE)
    parents = [PARENT, PARENT, 1]
    monkeypatch.setattr(first_release.os, "getppid", lambda: parents.pop(0))
    wait(settings(), PARENT)
    assert time.sleeps == [5.0, 5.0]


def test_its_status_is_2_with_a_sentence_for_settings_and_registries_of_which_nothing_can_be_had(monkeypatch, capsys):
    monkeypatch.setattr(first_release.os, "environ", environment := {"PLIANT_MARGIN": "2"})
    assert main("bins", PARENT) == 2
    assert capsys.readouterr().out.startswith("PLIANT_MARGIN is '2'")
    del environment["PLIANT_MARGIN"]
    look(monkeypatch, "")
    assert main("bins", PARENT) == 0
