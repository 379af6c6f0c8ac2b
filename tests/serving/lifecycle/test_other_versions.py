"""A registry that another version of Pliant writes: what is served stays, the status says why, and nobody starts with it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from pliant.bins.artifact import Bins
from pliant.errors import ArtifactError
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import TEXT, encoder, plan, publish_tiny
from tests.fixtures.registry import FolderRegistry

NAME = BINS_PREFIX + "colours"
NEWER = "a newer version of Pliant wrote it; update this one"
OLDER = "an older version of Pliant wrote it; run its flow again with this version"
FIELD = "this version of Pliant does not know its hue: a newer one wrote it; update this one"


@dataclass(frozen=True, slots=True)
class NewerSchema(Bins):
    SCHEMA: ClassVar[int] = Bins.SCHEMA + 1


@dataclass(frozen=True, slots=True)
class OlderSchema(Bins):
    SCHEMA: ClassVar[int] = Bins.SCHEMA - 1


@dataclass(frozen=True, slots=True)
class NewerField(Bins):
    hue: int = 1


OTHERS = [(NewerSchema, NEWER), (OlderSchema, OLDER), (NewerField, FIELD)]


@pytest.fixture
def registry(tmp_path):
    return FolderRegistry(tmp_path / "models")


def release(registry, kind: type[Any]) -> None:
    """Release an encoder and a plan that is of another version of Pliant's."""
    digest = registry.publish(BINS_ENCODER + "colours", encoder("colours", seed=1))
    usual = plan("colours", digest)
    registry.publish(NAME, kind(**{field.name: getattr(usual, field.name) for field in fields(usual)}))
    registry.commit("bins")


@pytest.mark.parametrize(("kind", "sentence"), OTHERS)
def test_a_service_that_meets_such_a_release_goes_on_with_its_own_and_says_so(kind, sentence, registry):
    publish_tiny(registry, "colours")
    registry.commit("bins")
    with serving(registry) as service:
        before = service.post("/predict", {"inputs": TEXT}).json()
        release(registry, kind)
        outcome = service.wait(service.endpoint.refresh())
        assert outcome["outcome"] == "held" and sentence in outcome["message"]
        assert "release 1 is served" in outcome["message"]
        status = service.call("GET", "/status").json()
        assert status["release"] == 1 and sentence in status["refresh"]["message"]
        assert service.post("/predict", {"inputs": TEXT}).json() == before


@pytest.mark.parametrize(("kind", "sentence"), OTHERS)
def test_a_service_that_starts_then_serves_the_release_before_or_says_why_it_does_not_start(kind, sentence, registry):
    release(registry, kind)
    with pytest.raises(ArtifactError, match=sentence), serving(registry):
        pass
    publish_tiny(registry, "colours")
    registry.commit("bins")
    release(registry, kind)
    with serving(registry) as service:
        status = service.call("GET", "/status").json()
    assert status["release"] == 2 and sentence in status["refresh"]["message"]
