"""A service serves what a trusted key has signed: anything else is held, and what is served goes on."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from pliant.errors import SignatureError
from pliant.registry.signing.signatures import Trust
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import publish_tiny
from tests.registry.signing.keys import SignedRegistry, new_signer
from tests.serving.lifecycle.refreshing import Registry, run

NAMES = ("pliant-bins-colours", "pliant-bins-encoder-colours")


@pytest.fixture
def signer(tmp_path):
    return new_signer(tmp_path / "keys")[0]


@pytest.fixture
def registry(tmp_path, signer):
    """One signed release."""
    registry = SignedRegistry(tmp_path / "models", Trust(tmp_path / "keys" / "release.pub.pem"))
    publish_tiny(registry, "colours")
    registry.commit("bins")
    registry.sign(signer)
    return registry


def release(registry, seed: int):
    publish_tiny(registry, "colours", seed=seed)
    return registry.commit("bins")


@pytest.mark.parametrize("signed", [(), NAMES[:1], NAMES[1:]], ids=["nothing", "the plan", "the encoder"])
def test_an_unsigned_champion_is_held_and_the_former_goes_on_and_the_status_log_and_metric_say_so(
    registry, signer, signed, caplog
):
    with serving(registry) as service, caplog.at_level(logging.WARNING, "pliant.serving"):
        release(registry, 1)
        for name in signed:
            registry.signatures[name, 2] = signer.tags(name, registry.version(name, 2).digest)
        answer = service.call("POST", "/refresh").json()
        assert answer["outcome"] == "held"
        assert "is refused: it is not signed" in answer["message"] and "`pliant sign bins`" in answer["message"]
        assert "version 2 of pliant-bins-" in answer["message"] and "release 1 is served" in answer["message"]
        assert answer["message"] in caplog.text
        status = service.call("GET", "/status").json()
        assert (status["release"], status["refresh"]["outcome"]) == (1, "held")
        assert service.sample("pliant_refreshes_total", outcome="held") == 1
        assert service.post("/predict", {"inputs": "a dog"}).status_code == 200
        registry.sign(signer)
        assert service.call("POST", "/refresh").json()["outcome"] == "changed"
        assert service.call("GET", "/status").json()["release"] == 2


def test_an_unsigned_release_is_looked_at_again_at_the_next_poll_after_it_was_signed_by_hand():
    """No request is needed: `pliant sign` leaves a mark on the release, which every poll reads anyway."""
    registry = Registry()
    registry.commit(a=1)

    async def scenario(service):
        registry.commit(a=2)
        service.broken[2] = SignatureError("version 2 is refused: it is not signed")
        for _ in range(3):
            outcome, message, _ = await service.poll(retry_held=False)
            assert outcome == "held" and "not signed" in message
        assert service.loads == 2, "what is held is not loaded with every poll: once each for release 2 and release 1"
        service.broken.clear()
        assert (await service.poll(retry_held=False))[0] == "held"
        registry.released[-1] = replace(registry.released[-1], signed="2026-01-01T00:00:00+00:00")
        assert (await service.poll(retry_held=False))[0] == "changed"
        await asyncio.sleep(0)

    run(scenario, registry)
