"""A service takes up whole releases: it serves the one before a broken one, and nothing of another registry."""

from __future__ import annotations

import logging
import shutil

import pytest

from pliant.errors import ArtifactError
from pliant.serving.lifecycle.catalog import load_last_whole
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry

ENCODER, PLAN = "pliant-bins-encoder-colours", "pliant-bins-colours"


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path / "models")
    publish_tiny(registry, "colours")
    registry.commit("bins")
    return registry


def release(registry, seed: int):
    publish_tiny(registry, "colours", seed=seed)
    return registry.commit("bins")


def damage(registry, name: str, number: int) -> None:
    shutil.rmtree(registry._root / name / str(number))


def test_a_service_follows_the_release_and_not_the_aliases_of_single_models(registry, caplog):
    with serving(registry) as service, caplog.at_level(logging.INFO, "pliant.serving"):
        publish_tiny(registry, "colours", seed=1)  # its aliases move, no release names it
        answer = service.call("POST", "/refresh").json()
        assert (answer["outcome"], "differs from release 1" in answer["message"]) == ("unchanged", True)
        assert "move the alias of the release" in caplog.text
        registry.commit("bins")
        answer = service.call("POST", "/refresh").json()
        assert (answer["outcome"], answer["changed"]) == ("changed", {ENCODER: 2, PLAN: 2})
        assert service.call("GET", "/status").json()["release"] == 2
        assert service.call("POST", "/refresh").json()["message"] == "the service serves what the alias points to"


def test_a_service_that_starts_goes_back_to_the_last_whole_release_and_says_so(registry):
    for seed in (1, 2, 3):
        release(registry, seed)
    damage(registry, ENCODER, 4)
    registry.releases[2] = type(registry.releases[2])("bins", 3, 2, {}, {})  # a tag that cannot be read
    with serving(registry) as service:
        status = service.call("GET", "/status").json()
        assert status["release"] == 2
        assert status["refresh"]["outcome"] == "held"
        assert "the last release is broken" in status["refresh"]["message"]
        assert "release 2 is served" in service.call("POST", "/refresh").json()["message"]


def test_an_artifact_that_took_anothers_place_under_its_number_breaks_a_release(registry):
    last = registry.releases[-1]
    registry.releases[-1] = type(last)("bins", 1, None, last.versions, {**last.digests, ENCODER: "f" * 64})
    with pytest.raises(ArtifactError, match="is not the artifact that release 1 of bins names"):
        load_last_whole(registry, "champion", "pliant-bins-", lambda view: view.fetch(ENCODER, "champion"))
