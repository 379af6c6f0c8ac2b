"""Catalogs of all systems serve the same if versions and digests are the same, and fetch only what the running one lacks."""

from __future__ import annotations

import pytest

from pliant.errors import ArtifactError, RegistryError
from pliant.registry import names
from pliant.serving.bins.catalog import load_catalog as load_bins
from pliant.serving.cascade.catalog import load_catalog as load_cascade
from pliant.serving.packing.catalog import load_catalog as load_packing
from tests.fixtures.bins import published as bins
from tests.fixtures.cascade import published as cascade
from tests.fixtures.packing import in_process as packing
from tests.fixtures.registry import FolderRegistry


def publish_bins(registry, seed: int) -> None:
    bins.publish_tiny(registry, "colours", seed=seed)


def publish_cascade(registry, seed: int) -> None:
    cascade.publish_tiny(registry, "colours", seed=seed)


SYSTEMS = {
    "bins": (load_bins, publish_bins, names.BINS_ENCODER + "colours"),
    "cascade": (load_cascade, publish_cascade, names.cascade_level("colours", cascade.LEVELS[0])),
    "packing": (load_packing, packing.publish, names.PACKING_GENERATOR + "tales"),
}


@pytest.fixture(params=sorted(SYSTEMS))
def system(request, tmp_path):
    load, publish, part = SYSTEMS[request.param]
    registry = FolderRegistry(tmp_path)
    publish(registry, 0)
    return registry, lambda running=None: load(registry, "champion", running), lambda: publish(registry, 1), part


def test_the_same_versions_serve_the_same_and_are_not_fetched_again(system):
    registry, load, _, _ = system
    first, count = load(), len(registry.fetched)
    assert first.serves_as(load()) and len(registry.fetched) == 2 * count
    assert load(first).serves_as(first)
    assert len(registry.fetched) == 2 * count
    assert first.folders and first.device


def test_newer_versions_serve_otherwise_from_other_folders(system):
    _, load, publish, _ = system
    first = load()
    publish()
    second = load(first)
    assert not second.serves_as(first) and not first.serves_as(second)
    assert not second.folders & first.folders
    assert second.serves_as(load())


def test_without_a_model_it_says_what_to_do(system, tmp_path):
    registry, load, _, _ = system
    registry.champions.clear()
    with pytest.raises(RegistryError, match="under the alias champion: train"):
        load()


def test_a_part_that_is_missing_or_another_than_was_planned_with_is_named_and_what_was_fetched_goes(system):
    registry, load, publish, part = system
    first = registry.champions.pop(part)
    with pytest.raises(ArtifactError, match=part):
        load()
    publish()
    registry.champions[part] = first
    with pytest.raises(ArtifactError, match="planned with"):
        load()
    assert registry.discarded
