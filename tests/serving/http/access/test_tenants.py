"""Tenant and weight of a key reach the scheduler of each system with every request (tokens: in its own tests of pins)."""

from __future__ import annotations

import asyncio

from pliant.serving.client import Client
from pliant.serving.journal import read
from tests.fixtures.bins import in_process as bins
from tests.fixtures.bins.published import publish_tiny as publish_bins
from tests.fixtures.cascade import in_process as cascade
from tests.fixtures.cascade.published import publish_tiny as publish_cascade
from tests.fixtures.clients import as_client
from tests.fixtures.packing import in_process as packing
from tests.fixtures.tokens.http import FolderRegistry

ACME = Client("acme", 3.0, frozenset({"use"}), "1234abcd")


def test_bins(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_bins(registry)
    journal = tmp_path / "journal.jsonl"
    settings = bins.BinsSettings(threads=1, refresh_seconds=0.0, max_body_bytes=2_000_000, max_texts=8, journal=journal)
    with bins.serving(registry, settings) as service:
        service.app = as_client(service.app, ACME)
        for path, body in (
            ("/colours/predict", {"inputs": "a dog"}),
            ("/meanings/embed", {"inputs": "a dog"}),
            ("/v1/embeddings", {"input": "a dog", "model": "meanings"}),
        ):
            assert service.post(path, body).status_code == 200, path
    requests = [entry.event.request for entry in read(journal) if hasattr(entry.event, "request")]
    assert [(request.tenant, request.weight) for request in requests] == [("acme", 3.0)] * 3


def test_cascade(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_cascade(registry)
    journal = tmp_path / "journal.jsonl"

    async def ask() -> str:
        settings = cascade.CascadeSettings(threads=1, refresh_seconds=0.0, journal=journal, outcomes_days=0.0)
        async with cascade.serving(registry, settings) as service:
            (answer,) = await service.ask(client=ACME)
            assert service.endpoint.outcomes.tracker.remembered(answer["id"]).common.tenant == "acme"
            return answer["id"]

    assert len(asyncio.run(ask())) == 32
    requests = [entry.event.request for entry in read(journal) if hasattr(entry.event, "request")]
    assert {(request.tenant, request.weight) for request in requests} == {("acme", 3.0)}


def test_packing(tmp_path):
    registry = FolderRegistry(tmp_path)
    packing.publish(registry)
    with packing.serving(registry) as service:
        service.app = as_client(service.app, ACME)
        assert service.complete(n=2).status_code == 200
        prompts = [arguments[0].prompt for verb, arguments in service.worker.sent if verb == "submit"]
    assert [(prompt.tenant, prompt.weight) for prompt in prompts] == [("acme", 3.0)] * 2
