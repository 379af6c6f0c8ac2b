"""What is fetched for a catalog is discarded once nobody serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.errors import DeviceError
from pliant.registry.package import Published
from pliant.serving.lifecycle.catalog import fetching, only_class


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
