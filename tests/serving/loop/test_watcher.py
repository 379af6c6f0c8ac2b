"""What is counted on the path becomes alarms off it, which survive a restart and end with the next release."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pliant.serving.loop.observe import DriftCounter
from pliant.serving.loop.watcher import Watcher, WatcherParts, WatchMetrics, accepted
from pliant.serving.request_context import EVIDENCE, holding
from pliant.serving.state_file import StateFile
from tests.fixtures.observed import sure, tossed

pytestmark = pytest.mark.virtual

NOW = datetime(2026, 11, 25, 3, tzinfo=UTC)


class Service:
    def __init__(self, folder) -> None:
        self.drift, self.release, self.events = DriftCounter(500), 1, []
        self.created = "2026-11-24T03:00:00+00:00"
        self.counted, self.at = CollectorRegistry(), NOW
        self.file = StateFile(folder / "bins.json")
        self.draw = np.random.default_rng(0)
        self.start()

    def start(self) -> None:
        async def inline(work, *arguments):
            return work(*arguments)

        parts = WatcherParts(
            system="bins",
            drift=self.drift,
            file=self.file,
            release=lambda: (self.release, self.created),
            metrics=WatchMetrics(self.counted),
            event=lambda kind, figures: self.events.append((kind, figures)),
            now=lambda: self.at,
            in_thread=inline,
        )
        self.watcher = Watcher(parts)

    def restart(self, burn_in: int = 500) -> None:
        self.watcher.save()
        self.drift, self.counted = DriftCounter(burn_in), CollectorRegistry()
        self.start()

    def toss(self, count: int, heads: float) -> None:
        for value in self.draw.random(count):
            self.drift.count(tossed(value >= heads))

    async def tosses(self, blocks: int, heads: float) -> list:
        alarms = []
        for _ in range(blocks):
            self.toss(50, heads)
            alarms += await self.watcher.look()
        return alarms

    def sample(self, name: str, **labels: str) -> float:
        return self.counted.get_sample_value(name, labels)


async def test_a_change_raises_one_alarm_with_a_sentence_an_event_a_metric_and_an_entry(tmp_path):
    service = Service(tmp_path)
    assert await service.tosses(200, 0.5) == []
    alarms = await service.tosses(200, 1.0)
    assert len(alarms) == 1 and ("was 5" in alarms[0].sentence or "was 4" in alarms[0].sentence)
    ((kind, figures),) = service.events
    assert (kind, figures["stream"], figures["release"]) == ("alarm", "coin", 1)
    assert figures["at"] == "2026-11-25T03:00:00+00:00" and figures["reason"] == alarms[0].sentence
    assert service.sample("pliant_drift", stream="coin") == 1
    assert service.sample("pliant_drift_alarms_total", stream="coin") == 1
    assert service.sample("pliant_drift_evidence", stream="coin") == 1
    assert service.watcher.to_dict()["alarms"][0]["stream"] == "coin"


async def test_what_is_known_survives_a_restart_and_an_alarm_is_not_raised_again(tmp_path):
    service = Service(tmp_path)
    await service.tosses(100, 0.5)
    service.restart()
    (row,) = service.watcher.to_dict()["streams"]
    assert row["observations"] == 5000 and row["state"] == "watching"
    assert len(await service.tosses(200, 1.0)) == 1
    service.restart()
    assert await service.tosses(50, 1.0) == [] and len(service.watcher.to_dict()["alarms"]) == 1
    assert len(service.events) == 1


async def test_a_restarted_service_learns_for_as_long_as_the_setting_says_by_now(tmp_path):
    service = Service(tmp_path)
    await service.tosses(5, 0.5)
    service.restart(burn_in=1000)
    await service.tosses(10, 0.5)
    assert service.watcher.to_dict()["streams"][0]["state"] == "learning", "of 750 observations"
    await service.tosses(6, 0.5)
    assert service.watcher.to_dict()["streams"][0]["state"] == "watching"


def test_a_state_that_cannot_be_read_is_begun_anew(tmp_path, caplog):
    (tmp_path / "bins.json").write_text('{"watch": {}, "release": 1, "alarms": []}')
    service = Service(tmp_path)
    assert service.watcher.to_dict()["streams"] == [] and "learnt anew" in caplog.text


async def test_a_release_that_was_made_after_the_alarm_answers_it_and_is_learnt_anew(tmp_path):
    service = Service(tmp_path)
    await service.tosses(100, 0.5)
    assert len(await service.tosses(200, 1.0)) == 1
    service.release, service.created = 2, "2026-11-25T04:00:00+00:00"
    assert await service.tosses(200, 1.0) == []
    assert service.watcher.to_dict()["alarms"] == []


async def test_an_alarm_stands_after_a_promotion_and_a_rollback_of_something_else_and_is_told_every_day(tmp_path):
    service = Service(tmp_path)
    await service.tosses(100, 0.5)
    assert len(await service.tosses(200, 1.0)) == 1
    service.release = 2  # made before the alarm
    await service.tosses(200, 1.0)
    service.restart()
    service.release = 1
    assert await service.tosses(10, 1.0) == [], "its own reference and alarm are there again"
    (alarm,) = service.watcher.to_dict()["alarms"]
    assert alarm["stream"] == "coin" and len(service.events) == 1
    (row,) = service.watcher.to_dict()["streams"]
    assert row["state"] == "alarm" and ("was 5" in row["sentence"] or "was 4" in row["sentence"])
    for day in (1, 2):
        service.at = NOW + timedelta(days=day)
        await service.tosses(2, 1.0)
        assert len(service.events) == 1 + day and service.events[-1][1]["reason"] == alarm["sentence"]


async def test_a_change_that_is_accepted_by_hand_is_usual_from_then_on(tmp_path):
    service = Service(tmp_path)
    await service.tosses(100, 0.5)
    assert len(await service.tosses(200, 1.0)) == 1
    accepted(service.file).touch()
    assert await service.tosses(200, 1.0) == [] and service.watcher.to_dict()["alarms"] == []
    assert not accepted(service.file).exists() and len(await service.tosses(200, 0.0)) == 1


async def test_accuracy_is_estimated_from_the_latest_confidences(tmp_path):
    service = Service(tmp_path)
    for share in (0.9, 0.6):
        for _ in range(100):
            for _ in range(100):
                service.drift.count(sure(share))
            await service.watcher.look()
    estimate = service.watcher.estimates()["mails"]
    assert abs(estimate.accuracy - 0.6) < 0.02 and estimate.answers <= 4000
    assert service.watcher.to_dict()["estimated_accuracy"]["mails"]["low"] < 0.6
    assert abs(service.sample("pliant_estimated_accuracy", stream="mails") - 0.6) < 0.02


async def test_the_task_looks_and_saves_in_time_and_a_full_disk_does_not_end_it(tmp_path):
    service = Service(tmp_path)
    task = asyncio.create_task(service.watcher.run(5.0))
    service.toss(600, 0.5)
    await asyncio.sleep(40)
    assert service.file.read()["watch"]["detectors"]
    service.file.path.unlink()
    service.file.path.mkdir()
    service.toss(600, 0.5)
    await asyncio.sleep(100)
    assert not task.done() and service.watcher.to_dict()["streams"][0]["observations"] == 1200
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_one_tenant_sends_is_shown_and_starts_nothing_until_others_send_it_too(tmp_path):
    service = Service(tmp_path)

    async def tossed(heads: dict[str, float], blocks: int) -> None:
        for _ in range(blocks):
            for tenant, share in heads.items():
                with holding(EVIDENCE, tenant):
                    service.toss(300 if tenant == "evil" else 50, share)
            await service.watcher.look()

    await tossed({"acme": 0.1, "beta": 0.1, "evil": 0.1}, 20)
    await tossed({"acme": 0.1, "beta": 0.1, "evil": 1.0}, 60)
    assert service.watcher.to_dict()["alarms"][0]["stream"] == "coin" and service.events == []
    service.restart()
    await tossed({"acme": 0.1, "beta": 0.1, "evil": 1.0}, 20)
    assert service.events == []
    await tossed({"acme": 1.0, "beta": 1.0, "evil": 1.0}, 60)
    assert [(kind, figures["stream"]) for kind, figures in service.events] == [("alarm", "coin")]
