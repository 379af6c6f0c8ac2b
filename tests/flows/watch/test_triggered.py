"""What surrounds a flow's work, its events and its automations, without a server."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pliant.flows.release import Release
from pliant.flows.watch import automations, notify, triggered
from pliant.flows.watch.automations import Deployed, Targets

IDENTITY = UUID(int=7)


def _released(promoted: bool, run: str) -> Release:
    return Release(promoted, "better by 3%", {"pliant-tokens-profile": 2}, (), run)


@pytest.fixture
def emitted(monkeypatch) -> list[dict[str, Any]]:
    """The events that are emitted while the registry serves release 4, which the run `r4` has written."""
    present = SimpleNamespace(number=4, run="r4", versions={"pliant-tokens-profile": 2})
    monkeypatch.setattr(notify, "open_registry", lambda *_: SimpleNamespace(release=lambda _: present))
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(notify, "emit_event", lambda name, **rest: sent.append({"name": name, **rest}))
    return sent


def test_a_release_that_is_served_by_its_own_run_is_a_new_champion(emitted):
    notify.emit_champion("tokens", _released(True, "r4"))
    (event,) = emitted
    assert event["name"] == "pliant.champion"
    assert event["resource"]["prefect.resource.id"] == "pliant.tokens"
    versions = {"pliant-tokens-profile": 2}
    assert event["payload"] == {"reason": "better by 3%", "release": 4, "versions": versions, "run": "r4"}


@pytest.mark.parametrize("released", [_released(True, "another"), _released(False, "r4"), _released(True, "")])
def test_what_was_refused_or_only_proposed_or_served_before_is_no_new_champion(emitted, released):
    notify.emit_champion("tokens", released)
    assert emitted == []


def test_outside_of_prefect_a_flow_is_its_function_alone():
    def work(config: str | None = None, reason: str | None = None) -> dict[str, Any]:
        return {"config": config, "reason": reason}

    assert triggered.triggered("tokens", work)("a", reason="why") == {"config": "a", "reason": "why"}


def test_the_reason_is_a_tag_of_every_mlflow_run_that_published(monkeypatch):
    tags: list[tuple[str, ...]] = []
    client = SimpleNamespace(set_tag=lambda *tag: tags.append(tag))
    monkeypatch.setattr(triggered, "open_registry", lambda *_: SimpleNamespace(connect=lambda: client))
    triggered.tag_runs("packing", "why", {"run": "a b"})
    triggered.tag_runs("packing", "why", {"run": ""})
    assert tags == [("a", "pliant.reason", "why"), ("b", "pliant.reason", "why")]


@pytest.mark.parametrize(("webhook", "kind"), [(True, "call-webhook"), (False, "send-notification")])
def test_a_block_is_called_by_the_server_besides_the_flow_that_needs_a_worker(webhook, kind):
    deployed = [Deployed("tokens", IDENTITY, "tokens"), Deployed("bins", UUID(int=8))]
    wanted = automations.automations(Targets(deployed, IDENTITY, IDENTITY, (UUID(int=9), webhook)), 3600.0)
    kinds = {automation.name: [action.type for action in automation.actions] for automation in wanted}
    assert kinds == {
        "pliant: a run failed": ["run-deployment", kind],
        "pliant: no worker": ["run-deployment", kind],
        "pliant: a silent run": ["change-flow-run-state"],
        "pliant: a hung run": ["cancel-flow-run"],
        "pliant: an alarm of tokens": ["run-deployment"],
        "pliant: no run of tokens": ["run-deployment", kind],
        "pliant: no run of bins": ["run-deployment", kind],
    }


@pytest.mark.parametrize(
    ("cron", "days"),
    [
        ("0 3 * * *", 1),
        ("*/5 * * * *", 1),
        ("0 3 * * 1-5", 7),
        ("0 3 1 * *", 31),
        ("0 3 1 1 *", 366),
        ("@daily", 1),
        ("@weekly", 7),
    ],
)
def test_a_run_that_is_not_due_every_day_is_missed_later(cron, days):
    assert automations.period(cron) == timedelta(days=days)
    weekly = Deployed("bins", IDENTITY, "", automations.period(cron))
    wanted = automations.automations(Targets([weekly], IDENTITY, IDENTITY), 3600.0)
    within = {automation.name: automation.trigger.within for automation in wanted}
    assert within["pliant: no run of bins"] == timedelta(days=days, hours=2)
