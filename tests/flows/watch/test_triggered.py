"""What surrounds a flow's work, its events and its automations, without a server."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.flows.release import Release
from pliant.flows.watch import automations, notify, triggered
from pliant.flows.watch.automations import Deployed, Targets
from pliant.flows.watch.triggered import FormerRun, decide, read_alarms, state_file, to_markdown

ALARM = {
    "stream": "digit",
    "sentence": "The share of class 3 rose",
    "evidence": 2041.5,
    "at": "2026-01-01",
    "observations": 812,
}

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

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
    notify.emit_release("tokens", _released(True, "r4"))
    (event,) = emitted
    assert event["name"] == "pliant.champion"
    assert event["resource"]["prefect.resource.id"] == "pliant.tokens"
    versions = {"pliant-tokens-profile": 2}
    assert event["payload"] == {"reason": "better by 3%", "release": 4, "versions": versions, "run": "r4"}


@pytest.mark.parametrize("released", [_released(True, "another"), _released(False, ""), _released(True, "")])
def test_what_was_only_proposed_or_served_before_is_no_new_champion(emitted, released):
    notify.emit_release("tokens", released)
    assert emitted == []


def test_what_the_gate_refused_is_told_with_its_reason(emitted):
    notify.emit_release("tokens", _released(False, "r4"))
    (event,) = emitted
    assert (event["name"], event["payload"]["reason"]) == ("pliant.refused", "better by 3%")


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


@pytest.mark.parametrize(
    ("hours", "started", "trains"),
    [
        (None, {"reason": "drift"}, True),
        (2.5, {"reason": "drift"}, False),
        (2.5, {"auto_scheduled": True}, False),
        (2.5, {}, True),
        (2.6, {"reason": "drift"}, True),
    ],
)
def test_once_the_hours_of_the_week_are_used_up_what_no_person_started_asks_one(
    hours, started, trains, emitted, monkeypatch
):
    live, log = SimpleNamespace(number=4), []
    registry = SimpleNamespace(exists=lambda: True, release=lambda _: live)
    run = SimpleNamespace(id=IDENTITY, deployment_id=IDENTITY, auto_scheduled="auto_scheduled" in started)
    if hours is not None:
        monkeypatch.setenv("PLIANT_TRAINING_HOURS_PER_WEEK", str(hours))
    for name, value in {
        "current_run": lambda: run,
        "open_registry": lambda *_: registry,
        "spent": lambda _, span: 9000.0 * (span == timedelta(days=7)),
        "debounced": lambda *_: triggered.Decision(),
        "guarded": lambda *_: nullcontext(),
        **dict.fromkeys(("check_registry", "create_markdown_artifact", "tag_runs"), lambda *_, **__: None),
    }.items():
        monkeypatch.setattr(triggered, name, value)
    monkeypatch.setattr(triggered.decisions, "write", lambda *entry: log.append(entry[1:]))

    ended: Any = triggered.triggered("tokens", lambda reason: {"promoted": True})(started.get("reason"))
    if trains:
        assert (ended, emitted, log) == ({"promoted": True}, [], [])
        return
    sentence = ended.message
    assert ended.name == "Skipped" and "took 2.5 hours" in sentence and "`pliant train tokens`" in sentence
    assert [(event["name"], event["payload"]) for event in emitted] == [("pliant.refused", {"reason": sentence})]
    assert log == [("not retrained", live, sentence, live)]


@pytest.mark.parametrize(("webhook", "kind"), [(True, "call-webhook"), (False, "send-notification")])
def test_a_block_is_called_by_the_server_besides_the_flow_that_needs_a_worker(webhook, kind):
    deployed = [Deployed("tokens", IDENTITY, "tokens"), Deployed("bins", UUID(int=8))]
    wanted = automations.automations(Targets(deployed, IDENTITY, IDENTITY, (UUID(int=9), webhook)), 3600.0)
    kinds = {automation.name: [action.type for action in automation.actions] for automation in wanted}
    assert kinds == {
        "pliant: a run failed": ["run-deployment", kind],
        "pliant: decisions": ["run-deployment", kind],
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


def minutes(count: float) -> datetime:
    return START + timedelta(minutes=count)


def former(started: float, *, completed: bool = True, alarm: bool = True) -> FormerRun:
    return FormerRun(f"id-{started}", f"run-{started}", minutes(started), completed, alarm)


def test_a_run_that_began_after_the_alarm_and_completed_has_answered_it():
    decision = decide(minutes(0), minutes(90), HOUR, [former(5, alarm=False)])
    assert decision.sentence == "The alarm was answered by the run run-5, which began after it."
    assert decision.at is None


def test_a_run_that_began_before_the_alarm_has_not_answered_it_and_another_one_follows():
    decision = decide(minutes(20), minutes(40), HOUR, [former(10)])
    assert (decision.at, decision.after) == (minutes(70), "id-10")
    assert "another one follows at 01:10 UTC" in decision.sentence


def test_a_run_that_failed_has_answered_nothing_but_counts_against_the_next_one():
    failed = former(10, completed=False)
    assert decide(minutes(5), minutes(40), HOUR, [failed]).at == minutes(70)
    assert decide(minutes(5), minutes(71), HOUR, [failed]).sentence == ""


def test_a_run_that_began_under_a_clock_a_day_ahead_answers_no_later_alarm():
    tomorrow = former(24 * 60, alarm=False)
    assert decide(minutes(10), minutes(11), HOUR, [tomorrow]).sentence == ""
    assert decide(minutes(10), minutes(11), HOUR, [former(24 * 60)]).sentence == ""


@given(st.lists(st.floats(0, 600), min_size=1, max_size=30), st.floats(0, 5))
def test_runs_are_at_least_an_hour_apart_and_every_alarm_is_followed_by_one(alarms, lasts):
    """Prefect's part in virtual time: one run at a time, each in its turn, and one that follows a run is one only."""
    queue, worked, followed, free = sorted((moment, moment) for moment in alarms), [], set(), 0.0
    while queue:
        due, created = queue.pop(0)
        now = max(due, free)
        decision = decide(minutes(created), minutes(now), HOUR, worked)
        if decision.sentence:
            if decision.at is not None and decision.after not in followed:
                followed.add(decision.after)
                later = (decision.at - START).total_seconds() / 60
                queue = sorted([*queue, (later, now)])
            continue
        worked.append(former(now))
        free = now + lasts
    starts = [(run.started - START).total_seconds() / 60 for run in worked]
    assert all(later - earlier >= 60 - 1e-4 for earlier, later in itertools.pairwise(starts))
    assert all(any(start >= moment - 1e-4 for start in starts) for moment in alarms)
    assert len(starts) <= max(alarms) // 60 + 2


@pytest.mark.parametrize(
    ("tags", "hours", "tag"), [([], 1, "try-2"), (["alarm", "try-3"], 4, "try-4"), (["try-6"], None, "")]
)
def test_a_refused_run_is_followed_by_another_after_twice_the_time_of_the_last(tags, hours, tag, monkeypatch):
    made = []
    client = SimpleNamespace(create_flow_run_from_deployment=lambda *args, **kwargs: made.append(kwargs))
    monkeypatch.setattr(triggered, "get_client", lambda **_: nullcontext(client))
    run = SimpleNamespace(id=IDENTITY, deployment_id=IDENTITY, tags=tags, parameters={"reason": "drift"})
    triggered.try_again(run, timedelta(hours=1))
    if hours is None:
        assert made == []
        return
    ((kwargs),) = made
    waited = kwargs["state"].state_details.scheduled_time - datetime.now(UTC)
    assert abs(waited - timedelta(hours=hours)) < timedelta(minutes=1)
    assert (kwargs["tags"], kwargs["parameters"]) == ([tag], run.parameters)


def test_the_report_is_a_table_of_the_alarms():
    lines = to_markdown("tokens", "the class mix changed", [ALARM]).splitlines()
    assert lines[:3] == ["# tokens: why this run was started", "", "the class mix changed"]
    assert lines[4] == "| stream | evidence | since | observations | what was noticed |"
    assert lines[6] == "| digit | 2042 | 2026-01-01 | 812 | The share of class 3 rose |"


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"alarms": 3}', b'{"alarms": [1, null]}', b"\xff"])
def test_without_a_usable_state_only_the_reason_is_shown(tmp_path, content):
    path = state_file(tmp_path, "tokens")
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    assert read_alarms(path) == []
    assert to_markdown("tokens", "why", read_alarms(path)) == "# tokens: why this run was started\n\nwhy"


@given(st.text(max_size=500))
def test_whatever_a_stream_is_called_it_is_one_cell_without_markup(text):
    *_, row = to_markdown("tokens", "why", [{"stream": text, "evidence": 1}]).split("\n")
    assert row.replace("\\|", "").count("|") == 3
    assert "<" not in row
    assert len(row) < 1000
