"""What a service takes up: whole releases, of its version of Pliant, signed by a trusted key; else it says what is wrong."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pliant.bins.artifact import Bins
from pliant.errors import ArtifactError, InputError, SignatureError
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.registry.signing.signatures import Trust
from pliant.serving.bins.assembly import BinsSystem
from pliant.serving.lifecycle.catalog import fetching, open_registry
from pliant.serving.lifecycle.refresh import Source
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import encoder, plan, publish_tiny, settings_for
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.signing import SignedRegistry, new_signer
from tests.serving.lifecycle.refreshing import Registry, Service

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
    shutil.rmtree(registry.root / name / str(number))


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


def test_where_no_release_is_whole_the_error_is_that_of_the_last(registry, tmp_path):
    release(registry, 1)
    for number in (1, 2):
        damage(registry, ENCODER, number)
    with pytest.raises(Exception, match=f"{ENCODER} has no version 2"):
        BinsSystem(settings_for(tmp_path)).source(registry).load(None)


def test_an_artifact_that_took_anothers_place_under_its_number_breaks_a_release(registry):
    last = registry.releases[-1]
    registry.releases[-1] = type(last)("bins", 1, None, last.versions, {**last.digests, ENCODER: "f" * 64})
    with pytest.raises(ArtifactError, match="is not the artifact that release 1 of bins names"):
        Source(registry, "champion", "pliant-bins-", lambda view, alias, _: view.fetch(ENCODER, alias)).load(None)


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
def empty(tmp_path):
    return FolderRegistry(tmp_path / "models")


def release_of(empty, kind: type[Any]) -> None:
    """Release an encoder and a plan that is of another version of Pliant's."""
    digest = empty.publish(BINS_ENCODER + "colours", encoder("colours", seed=1))
    usual = plan("colours", digest)
    empty.publish(NAME, kind(**{field.name: getattr(usual, field.name) for field in fields(usual)}))
    empty.commit("bins")


@pytest.mark.parametrize(("kind", "sentence"), OTHERS)
def test_a_service_that_starts_then_serves_the_release_before_or_says_why_it_does_not_start(kind, sentence, empty):
    release_of(empty, kind)
    with pytest.raises(ArtifactError, match=sentence), serving(empty):
        pass
    publish_tiny(empty, "colours")
    empty.commit("bins")
    release_of(empty, kind)
    with serving(empty) as service:
        status = service.call("GET", "/status").json()
    assert status["release"] == 2 and sentence in status["refresh"]["message"]


NAMES = ("pliant-bins-colours", "pliant-bins-encoder-colours")


@pytest.fixture
def signer(tmp_path):
    return new_signer(tmp_path / "keys")[0]


@pytest.fixture
def signed_registry(tmp_path, signer):
    """One signed release."""
    signed_registry = SignedRegistry(tmp_path / "models", Trust(tmp_path / "keys" / "release.pub.pem"))
    publish_tiny(signed_registry, "colours")
    signed_registry.commit("bins")
    signed_registry.sign(signer)
    return signed_registry


@pytest.mark.parametrize("signed", [(), NAMES[:1], NAMES[1:]], ids=["nothing", "the plan", "the encoder"])
def test_an_unsigned_champion_is_held_and_the_former_goes_on_and_the_status_log_and_metric_say_so(
    signed_registry, signer, signed, caplog
):
    with serving(signed_registry) as service, caplog.at_level(logging.WARNING, "pliant.serving"):
        release(signed_registry, 1)
        for name in signed:
            signed_registry.signatures[name, 2] = signer.tags(name, signed_registry.version(name, 2).digest)
        answer = service.call("POST", "/refresh").json()
        assert answer["outcome"] == "held"
        assert "is refused: it is not signed" in answer["message"] and "`pliant sign bins`" in answer["message"]
        assert "version 2 of pliant-bins-" in answer["message"] and "release 1 is served" in answer["message"]
        assert answer["message"] in caplog.text
        status = service.call("GET", "/status").json()
        assert (status["release"], status["refresh"]["outcome"]) == (1, "held")
        assert service.sample("pliant_refreshes_total", outcome="held") == 1
        assert service.post("/predict", {"inputs": "a dog"}).status_code == 200
        signed_registry.sign(signer)
        assert service.call("POST", "/refresh").json()["outcome"] == "changed"
        assert service.call("GET", "/status").json()["release"] == 2


async def test_an_unsigned_release_is_looked_at_again_at_the_next_poll_after_it_was_signed_by_hand():
    """No request is needed: `pliant sign` leaves a mark on the release, which every poll reads anyway."""
    signed_registry = Registry()
    signed_registry.commit(a=1)
    service = Service(signed_registry)
    signed_registry.commit(a=2)
    service.broken[2] = SignatureError("version 2 is refused: it is not signed")
    for _ in range(3):
        outcome, message, _ = await service.poll(retry_held=False)
        assert outcome == "held" and "not signed" in message
    assert service.loads == 2, "what is held is not loaded with every poll: once each for release 2 and release 1"
    service.broken.clear()
    assert (await service.poll(retry_held=False))[0] == "held"
    signed_registry.released[-1] = replace(signed_registry.released[-1], signed="2026-01-01T00:00:00+00:00")
    assert (await service.poll(retry_held=False))[0] == "changed"
    await asyncio.sleep(0)


def test_the_settings_say_whom_a_service_trusts_and_a_path_without_keys_is_an_error_at_the_start(tmp_path, signer):
    assert open_registry(settings_for(tmp_path)).signing.trust is None
    trusting = open_registry(settings_for(tmp_path, trusted_keys=tmp_path / "keys" / "release.pub.pem"))
    assert list(trusting.signing.trust.read()) == [signer.id]
    with pytest.raises(InputError, match="PLIANT_TRUSTED_KEYS is"):
        open_registry(settings_for(tmp_path, trusted_keys=tmp_path / "nothing"))


def test_what_was_fetched_for_a_catalog_that_fails_is_discarded(registry):
    with (
        pytest.raises(ValueError, match="broken"),
        fetching(registry, "champion", "pliant-bins-", {ENCODER: 1, PLAN: 1}) as fetcher,
    ):
        fetcher.fetch(ENCODER)
        fetcher.fetch(PLAN)
        raise ValueError("broken")
    assert registry.discarded == [Path(ENCODER, "1"), Path(PLAN, "1")]
