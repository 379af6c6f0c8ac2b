"""A new champion takes over without losing an output; artifacts that do not fit together change nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.packing.fakes import TALE
from tests.fixtures.packing.in_process import publish, serving
from tests.fixtures.tokens.http import FolderRegistry


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish(registry)
    return registry


def test_outputs_on_their_way_end_where_they_began(registry):
    with serving(registry) as service:
        former = service.worker
        former.held = True

        async def taking_over():
            asking = asyncio.create_task(service.posting("/completions", {"prompt": "a", "temperature": 0}))
            await service.until(lambda: service.engine.pending == 1)
            publish(registry, seed=1)
            assert (await service.posting("/refresh", {})).json()["outcome"] == "changed"
            told = (await service.posting("/completions", {"prompt": "a", "temperature": 0})).json()
            assert told["choices"][0]["text"] == TALE and service.worker is not former
            assert service.status_now()["leaving"] == 1
            former.held = False
            assert (await asking).json()["choices"][0]["text"] == TALE
            await service.until(lambda: former.stopped)
            return told

        service.status_now = lambda: {"leaving": service.assembly.generations.draining}
        service.wait(taking_over())
        assert service.status()["models"][0]["generator"]["version"] == 2
        assert registry.discarded  # the former's files


def test_a_new_engine_that_cannot_start_leaves_the_present_one(registry):
    with serving(registry) as service:
        publish(registry, seed=3)
        service.trouble = "no room for the model"
        response = service.post("/refresh", {})
        assert response.status_code == 503 and "no room" in response.text
        assert service.complete().status_code == 200
