"""A challenger of packing is tried on chats: copies whose texts nobody gets, then a share of the requests, streams too."""

from __future__ import annotations

import asyncio

import pytest

from pliant.registry import codec
from pliant.registry.releases import RegistryRelease
from pliant.serving.lifecycle import system
from tests.fixtures.packing.in_process import QUIET, events, publish, serving
from tests.fixtures.registry import FolderRegistry
from tests.serving.loop.trial_service import Record

COPIES = {"trial_copied": 1.0, "trial_copies": 6, "trial_copy_time": 1.0}
SHORT = {**COPIES, "trial_steps": "0.5,1", "trial_requests": 8, "trial_seconds": 2.0, "guard_hours": 0.0}


class PackingRecord(Record):
    """Release 2 waits: the same models as release 1, under their second versions."""

    def __init__(self, registry: FolderRegistry) -> None:
        super().__init__()
        names = registry.releases[0].versions
        digests = {name: codec.digest(registry.root / name / "2") for name in names}
        self.release = RegistryRelease("packing", 2, 1, dict.fromkeys(names, 2), digests)
        self.registry = registry

    def challenger(self):
        return None if self.promoted or "taken back" in self.states else self.release

    def promote(self, release, reason) -> None:
        super().promote(release, reason)
        self.registry.releases.append(release)
        self.registry.champions |= release.versions


@pytest.fixture
def registry(tmp_path) -> FolderRegistry:
    registry = FolderRegistry(tmp_path / "registry")
    publish(registry)
    registry.commit("packing")
    champions = dict(registry.champions)
    publish(registry)
    registry.champions = champions
    return registry


def test_chats_and_streams_are_answered_once_while_a_challenger_becomes_champion(registry, tmp_path, monkeypatch):
    record = PackingRecord(registry)
    monkeypatch.setattr(system, "MlflowRegistry", FolderRegistry)
    monkeypatch.setattr(system, "TrialRecord", lambda _registry, _system: record)
    settings = QUIET.replace(refresh_seconds=0.2, home=tmp_path / "home", **SHORT)
    with serving(registry, settings) as service:
        trials, generations = service.assembly.refresher.trials, service.assembly.generations

        async def chat(number: int) -> None:
            body = {"prompt": f"Tell me {number}", "temperature": 0, "max_tokens": 2, "stream": number % 2 == 0}
            answer = await service.posting("/completions", body, x_pliant_key=f"client {number}")
            assert answer.status_code == 200, answer.text
            assert not body["stream"] or events(answer)[-1] == "[DONE]"

        async def scenario() -> int:
            async with asyncio.timeout(240):
                await service.until(lambda: trials.to_dict() is not None)
                assert trials.to_dict()["stage"] == "shadow"
                sent = 0
                while not record.promoted:
                    await chat(sent)
                    sent += 1
                    await asyncio.sleep(0)
                await service.until(lambda: generations.challenger is None and generations.present.number > 1)
                await chat(sent)
            return sent + 1

        sent = service.wait(scenario())
        assert service.sample("pliant_arrivals_total", task="tales") == sent, "copies are not counted"
        status = service.status()
    assert record.states[:2] == ["shadow", "canary"] and status["release"] == 2
    assert status["models"][0]["generator"]["version"] == 2 and len(service.workers) == 3
