"""Two alarms in one look, and alarms of two systems: each is an event, a run a system follows, and it shows both reasons."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from pliant import systems
from pliant.flows.watch.automations import ALARM_PREFIX, Deployed, Targets, automations
from pliant.flows.watch.deployments import nightly_flows
from pliant.flows.watch.triggered import read_alarms, to_markdown
from pliant.serving.events import ALARM, PROMISE_BROKEN, Event
from tests.fixtures.observed import tossed
from tests.serving.loop.test_watcher import Service


async def test_two_streams_that_change_in_one_look_are_two_events_and_both_are_in_the_report_of_the_run(tmp_path):
    service = Service(tmp_path)
    looks = []
    for heads in (0.5, 1.0):
        for _ in range(200):
            drawn = [int(value >= heads) for value in service.draw.random(50)]
            for value in drawn:
                service.drift.count(tossed(value) + tossed(value, "other coin"))
            looks.append(await service.watcher.look())
    (both,) = [alarms for alarms in looks if alarms]
    assert sorted(alarm.stream for alarm in both) == ["coin", "other coin"], "in the very same look"
    service.watcher.save()
    reasons = [(kind, figures["reason"]) for kind, figures in service.events]
    assert reasons == [("alarm", alarm.sentence) for alarm in both]
    report = to_markdown("bins", reasons[0][1], read_alarms(tmp_path / "bins.json"))
    assert all(alarm.sentence in report for alarm in both)


@pytest.mark.parametrize("kind", [ALARM, PROMISE_BROKEN])
def test_an_alarm_starts_the_run_of_its_own_system_alone(kind):
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import ReceivedEvent

    flows = [(flow, name) for name in systems.names() for flow in nightly_flows(name).values()]
    deployed = [Deployed(flow.flow, uuid4(), name if flow.alarmed else "") for flow, name in flows]
    alarms = [
        each for each in automations(Targets(deployed, uuid4(), uuid4()), 3600.0) if each.name.startswith(ALARM_PREFIX)
    ]
    fields = set(EventTrigger.model_fields) - {"id"}
    triggers = {
        alarm.actions[0].deployment_id: EventTrigger(**alarm.trigger.model_dump(include=fields)) for alarm in alarms
    }
    for system in systems.names():
        content = Event(kind, system, {"reason": "x"}).to_prefect()
        event = ReceivedEvent(**content, related=[], received=datetime.now(UTC))
        started = [each for each, trigger in triggers.items() if trigger.covers(event) and trigger.expects(event.event)]
        assert started == [each.identity for each in deployed if each.alarmed_by == system] and len(started) == 1
