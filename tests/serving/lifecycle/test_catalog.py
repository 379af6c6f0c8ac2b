"""What is fetched for a catalog is discarded once nobody serves it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.errors import ArtifactError, DeviceError
from pliant.registry.package import Published
from pliant.serving.lifecycle import catalog
from pliant.serving.lifecycle.catalog import Fetcher, discard, fetching, only_class


class Registry:
    """Fetches `NAME/NUMBER`, and remembers what it discarded."""

    def __init__(self) -> None:
        self.discarded: list[Path] = []

    def versions(self, prefix, alias):
        return {f"{prefix}{alias}": 3}

    def fetch(self, name, which):
        return Path(name, str(which)), Published(name, 3, "digest", "", {})

    def discard(self, folder):
        self.discarded.append(folder)


def test_files_of_a_former_catalog_go_and_those_that_are_still_served_stay():
    registry = Registry()
    former, present = (SimpleNamespace(folders=set(map(Path, names))) for names in ("ab", "bc"))
    discard(registry, former, present)
    assert registry.discarded == [Path("a")]


@pytest.mark.parametrize(("pointers", "number"), [(None, "3"), ({"bins-champion": 2}, "2")])
def test_models_are_fetched_by_the_alias_or_by_the_versions_that_are_given(pointers, number):
    registry = Registry()
    with fetching(registry, "champion", "bins-", pointers) as fetcher:
        assert fetcher.fetch("bins-champion")[0] == Path("bins-champion", number)
    assert registry.discarded == []


def test_what_was_fetched_for_a_catalog_that_fails_is_discarded():
    registry = Registry()
    with (
        pytest.raises(ValueError, match="broken"),
        fetching(registry, "champion", "bins-", {"a": 1, "b": 2}) as fetcher,
    ):
        fetcher.fetch("a")
        fetcher.fetch("b")
        raise ValueError("broken")
    assert registry.discarded == [Path("a", "1"), Path("b", "2")]


def test_all_profiles_are_of_one_class_of_device():
    assert only_class({"cpu"}, "the tasks", "profile again") == "cpu"
    with pytest.raises(DeviceError, match=r"the tasks were .* on 2 classes of device \(cpu, gpu\): profile again"):
        only_class({"gpu", "cpu"}, "the tasks", "profile again")


@pytest.mark.parametrize("broken", [False, True])
def test_an_artifact_is_held_in_memory_and_its_files_go_even_if_it_is_broken(monkeypatch, broken):
    def read(kind, folder, digest):
        if broken:
            raise ArtifactError("altered")
        return kind, folder, digest

    monkeypatch.setattr(catalog.codec, "load", read)
    registry = Registry()
    fetcher = Fetcher(registry, "champion", {"a": 4})
    if broken:
        with pytest.raises(ArtifactError, match="altered"):
            fetcher.load("a kind", "a")
    else:
        artifact, published = fetcher.load("a kind", "a")
        assert artifact == ("a kind", Path("a", "4"), "digest") and published.version == 3
    assert registry.discarded == [Path("a", "4")] and fetcher.folders == []
