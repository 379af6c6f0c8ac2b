"""What survives a restart and faults of the disk, and inputs within their bounds where the settings say so."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from pliant.outcomes.files import forget, read_inputs, read_labels
from pliant.outcomes.tracker import Answered, Report, Tracker, digest_of
from pliant.serving.client import Client
from pliant.serving.loop.outcome_store import Inputs, OutcomeWriter, Store, open_writer
from pliant.serving.loop.outcomes import Outcomes, chosen_id, open_outcomes
from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.observed import remember, remember_in

DAYS = 30 * 86_400.0
ACME = Client("acme", 1.0, frozenset({"use"}), "key-1")


def answered(label="b", confidence=0.8, tenant="acme", **changes) -> Answered:
    fields = {"task": "t", "version": 1, "candidate": "default", "level": "small", "promised": 0.9, **changes}
    return Answered(label=label, confidence=confidence, classes=("a", "b"), tenant=tenant, **fields)


def opened(folder, memory: int = 100, clock=lambda: 1000.0) -> tuple[Store, Tracker]:
    store, tracker = Store(folder, memory, DAYS, clock), Tracker(memory, DAYS, recorded=True)
    tracker.restore(*store.load())
    return store, tracker


def kept(tracker: Tracker, ids) -> dict:
    rows = {id: tracker.remembered(id) for id in ids}
    return {id: (row.answered, row.reported) for id, row in rows.items() if row is not None}


@settings(max_examples=25, deadline=None)
@given(
    memory=st.integers(1, 6),
    steps=st.lists(st.tuples(st.sampled_from("rltx"), st.integers(0, 9), st.sampled_from("ab")), max_size=40),
)
def test_a_restart_at_any_moment_changes_nothing(tmp_path_factory, memory, steps):
    folder = tmp_path_factory.mktemp("outcomes")
    store, tracker = opened(folder, memory)
    plain = Tracker(memory, DAYS)
    counter = itertools.count()
    for kind, which, label in steps:
        if kind == "r":
            id, former = str(next(counter)), ((label, 0.25),)
            answer = answered(label, which / 10, former_levels=("tiny",), former=former)
            for one in (tracker, plain):
                remember_in(one, id, answer, 1000.0)
        elif kind == "l":
            results = [one.take(str(which), label, Report("acme", "k", 1000.0)) for one in (tracker, plain)]
            assert results[0] == results[1]
        elif kind == "t":
            assert tracker.take_back(1, Report()) == plain.take_back(1, Report())
        else:
            store.write(tracker.drain())
            store.close()
            store, tracker = opened(folder, memory)
        assert str(tracker.figures()) == str(plain.figures())
        assert tracker.alarms() == plain.alarms()
        assert kept(tracker, map(str, range(10))) == kept(plain, map(str, range(10)))
    store.close()


def test_figures_alarms_and_answers_are_there_after_a_restart_and_a_clock_that_was_set_back_costs_none(tmp_path):
    now = [time.time()]

    def restarted() -> Outcomes:
        writer = open_writer(tmp_path, 100, DAYS, False)
        return Outcomes(registry, 100, clock=lambda: now[0], writer=writer)

    registry = CollectorRegistry()
    first = restarted()
    for number in range(90):
        remember(first, str(number), answered())
    for number in range(80):
        first.take(str(number), "a", ACME)
    before, alarms = first.to_dict(), first.alarms()
    assert alarms and before[0]["broken"]
    first.close()
    now[0], registry = now[0] - 86_400.0, CollectorRegistry()
    second = restarted()
    assert (second.to_dict(), second.alarms()) == (before, alarms)
    names = {"task": "t", "version": "1", "candidate": "default"}
    assert registry.get_sample_value("pliant_promise_broken", names) == 1
    assert second.take("3", "a", ACME)["repeated"] and second.take("85", "b", ACME)["promise"]["labels"] == 81
    second.take_back("1", ACME)
    second.close()
    registry = CollectorRegistry()
    third = restarted()
    assert third.to_dict() == [] and third.alarms()[0]["taken_back"]["tenant"] == "acme"
    third.close()


def test_labels_are_in_the_file_with_their_tenants_and_without_words(tmp_path):
    writer = open_writer(tmp_path, 100, DAYS, False)
    outcomes = Outcomes(CollectorRegistry(), 100, writer=writer, clock=lambda: 5.0)
    remember(outcomes, "x", answered(former_levels=("tiny",), former=(("a", 0.5),)))
    outcomes.take("x", "a", ACME)
    outcomes.close()
    (record,) = read_labels(tmp_path)
    assert (record.id, record.predicted, record.label, record.correct) == ("x", "b", "a", False)
    assert (record.tenant, record.key, record.at, record.answered_at) == ("acme", "key-1", 5.0, 5.0)
    assert record.former == {"tiny": ("a", 0.5)}
    assert read_labels(tmp_path, since=5.1) == []
    assert oct((tmp_path / "labels.jsonl").stat().st_mode & 0o777) == "0o600"
    assert not (tmp_path / "inputs.db").exists()


def test_a_full_disk_is_logged_once_and_what_waits_is_written_later(tmp_path, caplog, monkeypatch):
    store, tracker = opened(tmp_path)
    full = [True]
    write = os.write

    def short(descriptor, data):
        if full[0]:
            write(descriptor, bytes(data)[:5])  # a part of the line fits
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("pliant.jsonl.os.write", short)
    with caplog.at_level(logging.WARNING, "pliant.serving"):
        for number in range(3):
            remember_in(tracker, str(number), answered(), 1.0)
            tracker.take(str(number), "a", Report("acme", "k", 1.0))
            store.write(tracker.drain())
        assert len(caplog.records) == 1 and "No space left on device; serving goes on" in caplog.text
        assert (tmp_path / "labels.jsonl").read_bytes() == b""
        full[0] = False
        store.write(tracker.drain())
    assert "is written again" in caplog.records[-1].message
    store.close()
    assert [record.id for record in read_labels(tmp_path)] == ["0", "1", "2"]
    store, again = opened(tmp_path)
    assert len(again) == 3 and again.figures() == tracker.figures()
    store.close()


def test_answers_that_are_too_old_are_gone_after_a_restart_and_new_ones_take_no_number_twice(tmp_path):
    store, tracker = opened(tmp_path, clock=lambda: 0.0)
    remember_in(tracker, "old", answered(), 0.0)
    remember_in(tracker, "new", answered(version=2), 2000.0)
    store.write(tracker.drain())
    store.close()
    store, tracker = opened(tmp_path, clock=lambda: DAYS + 1000.0)
    assert set(kept(tracker, ("old", "new"))) == {"new"}
    remember_in(tracker, "newer", answered(), DAYS + 1000.0)
    store.write(tracker.drain())
    store.close()
    with closing(sqlite3.connect(tmp_path / "outcomes.db")) as base:
        assert base.execute("SELECT sequence FROM answers ORDER BY 1").fetchall() == [(1,), (2,)]
        assert base.execute("SELECT COUNT(*) FROM shared").fetchone() == (2,)


def test_a_second_service_and_one_whose_folder_cannot_be_made_keep_their_outcomes_in_memory_and_say_so(
    tmp_path, caplog
):
    first = open_writer(tmp_path / "one", 10, DAYS, False)
    assert open_writer(tmp_path / "one", 10, DAYS, False, lock_seconds=0.0) is None
    first.close()
    (again := open_writer(tmp_path / "one", 10, DAYS, False, lock_seconds=0.0)).close()
    assert again is not None and "another service keeps its outcomes" in caplog.text
    (tmp_path / "outcomes").write_text("a file where the folder should be")
    outcomes = open_outcomes(TokensSettings(home=tmp_path), CollectorRegistry())
    remember(outcomes, "x", answered())
    assert outcomes.take("x", "b", ACME)["correct"] and "they are forgotten when the service ends" in caplog.text
    outcomes.close()


async def test_labels_a_week_late_are_taken_and_of_a_busy_hour_a_random_share(tmp_path):
    """As at 1 answer a second, and at 20 for an hour, but a sixtieth of it all."""
    week, now = 7 * 86_400.0, [0.0]
    store = Store(tmp_path, 50, DAYS, lambda: now[0], most=3_000_000 // 60)
    outcomes = Outcomes(CollectorRegistry(), 50, lambda: now[0], writer=OutcomeWriter(store, seconds=1e9), wanted=1.0)
    busy = 5000
    for number in range(int(week / 60) + 1200):
        now[0] += 60.0 if not busy <= number < busy + 1200 else 3.0
        remember(outcomes, str(number), answered())
        if number % 1000 == 0:
            await outcomes.written()
    store._pruned = -1e9
    await outcomes.written()
    for id in map(str, range(1, 500)):
        await outcomes.recall([id], ACME)
        assert outcomes.take(id, "b", ACME)["correct"]
    many = [str(busy + number) for number in range(1200)]
    await outcomes.recall(many, ACME)
    left = [int(id) - busy for id in many if outcomes.tracker.remembered(id, now[0])]
    assert 60 < len(left) < 150 and abs(np.mean(left) - 600) < 150
    outcomes.close()
    store, tracker = opened(tmp_path, 50, lambda: now[0])
    tracker.recall(store.find([digest_of("4")]))
    assert tracker.take("4", "b", Report(at=now[0])).status == "repeated"
    store.close()


def test_what_was_drawn_and_listed_is_so_after_a_restart(tmp_path):
    def restarted() -> Outcomes:
        writer = open_writer(tmp_path, 3, DAYS, False)
        return Outcomes(CollectorRegistry(), 3, writer=writer, wanted=100.0)

    first = restarted()
    for number in range(20):
        remember(first, chosen_id(ACME, f"é {number}"), answered())
    listed = first.wanted(10, ACME)
    first.take(listed[0]["id"], "b", ACME)
    first.close()
    second = restarted()
    assert second.wanted(9, ACME) == listed[1:]
    assert second.take(listed[1]["id"], "b", ACME)["counted"]
    second.close()
    weights = [record.weight for record in read_labels(tmp_path)]
    assert weights == pytest.approx([2.0, 2.0]), "ten of twenty were listed"


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at " * 20, None])
def test_a_file_that_cannot_be_used_is_put_aside(tmp_path, content, caplog):
    if content is None:
        base = sqlite3.connect(tmp_path / "outcomes.db")
        base.execute("PRAGMA user_version = 77")
        base.close()
    else:
        (tmp_path / "outcomes.db").write_bytes(content)
    store, tracker = opened(tmp_path)
    assert tracker.figures() == [] and (tmp_path / "outcomes.db.broken").exists()
    assert "outcomes start anew" in caplog.text
    store.close()


def test_lines_that_nobody_can_read_are_passed_over(tmp_path, caplog):
    store, tracker = opened(tmp_path)
    for id in "xy":
        remember_in(tracker, id, answered(version=id), 1.0)
        tracker.take(id, "a", Report("acme", "k", 1.0))
    store.write(tracker.drain())
    store.close()
    with closing(sqlite3.connect(tmp_path / "outcomes.db", isolation_level=None)) as base:
        base.execute("UPDATE records SET content = '{}' WHERE rowid = 1")
        base.execute("UPDATE shared SET content = 'x' WHERE id = 1")
        base.execute("""INSERT INTO alarms VALUES (1, '{"id": 1}')""")
    store, tracker = opened(tmp_path)
    assert [figures.version for figures in tracker.figures()] == ["y"]
    assert set(kept(tracker, "xy")) == {"y"} and tracker.alarms() == [] and "passed over in" in caplog.text
    store.close()


KILLED = """
import sys, time
from pathlib import Path
from prometheus_client import CollectorRegistry
from pliant.outcomes.tracker import Answered
from pliant.serving.client import Client
from pliant.serving.loop.outcome_store import open_writer
from pliant.serving.loop.outcomes import Outcomes
writer = open_writer(Path(sys.argv[1]), 1000, 1e9, False)
writer._seconds = 0.01
outcomes = Outcomes(CollectorRegistry(), 1000, writer=writer, days=1e4)
answered = Answered("t", 1, "default", "small", "b", 0.8, 0.9, classes=("a", "b"), tenant="acme")
for number in range(10**9):
    outcomes.tracker.remember(str(number), answered, "b", 0.8, outcomes.clock())
    if number < 900:
        outcomes.take(str(number), "b", Client("acme", key="k"))
    time.sleep(0.0005)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_killed_service_loses_no_more_than_the_last_moment(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) == 500:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    store, tracker = opened(tmp_path, 1000)
    (figures,) = tracker.figures()
    marked = [id for id, (_, label) in kept(tracker, map(str, range(600))).items() if label is not None]
    assert figures.labels == len(marked) == figures.levels[0].labels, "figures and labelled answers agree"
    assert len(marked) > 300
    assert len(read_labels(tmp_path)) >= len(marked)
    store.close()


def test_inputs_are_kept_within_their_bounds_and_forgotten(tmp_path):
    now = [0.0]
    inputs = Inputs(tmp_path, 100.0, lambda: now[0], max_count=5, max_bytes=1000)

    def kept_after(*ids: str, content: bytes = b'["private words"]') -> list[str]:
        for id in ids:
            inputs.keep(id, "t", "json", content)
        inputs.write()
        return [entry.id for entry in read_inputs(tmp_path)]

    assert kept_after(*"01234567") == ["3", "4", "5", "6", "7"]
    assert [entry.content for entry in read_inputs(tmp_path, {"4"})] == [b'["private words"]']
    now[0] = 50.0
    assert kept_after("a", "b", "c", content=bytes(400)) == ["b", "c"], "the oldest go first"
    kept_after("x")
    assert forget(tmp_path, ["x", "unknown"]) == 1
    now[0] = 151.0
    assert kept_after() == [] and kept_after("y") == ["y"]
    assert forget(tmp_path) == 1 and list(read_inputs(tmp_path)) == []
    assert b"private" not in b"".join(path.read_bytes() for path in tmp_path.iterdir()), "it is overwritten"
    assert kept_after(*"vwxyz", content=bytes(10 << 20)) == [], "each is more than all may have"
    inputs.close()
