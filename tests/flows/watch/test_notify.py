"""Notifications are written, bounded, and sent where an address is set; what fails is logged and nothing else."""

from __future__ import annotations

import json
import logging

import pytest

from pliant.flows.watch import notify
from tests.fixtures.listener import listening

NOTICE = {"text": "tokens: the run x ended as Failed", "flow": "tokens", "at": "2026-01-01"}


@pytest.fixture
def receiver():
    with listening(lambda message: (int(message.path.strip("/")), b"")) as listener:
        yield listener


def test_a_notification_is_posted_as_json(receiver):
    assert notify.send(f"{receiver.url}/200", NOTICE)
    assert [json.loads(message.body) for message in receiver.messages] == [NOTICE]


def test_a_webhook_that_fails_is_logged_without_its_address(receiver, caplog):
    with caplog.at_level(logging.WARNING):
        assert not notify.send(f"{receiver.url}/500", NOTICE)
        assert not notify.send("http://127.0.0.1:1/secret-path", NOTICE)
        assert not notify.send("file:///etc/passwd", NOTICE)
    assert len(caplog.records) == 3
    assert "status 500" in caplog.text
    assert "secret-path" not in caplog.text


def test_notifications_are_kept_in_a_file_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(notify, "MOST_BYTES", 500)
    path = tmp_path / "home" / "notifications.jsonl"
    for number in range(30):
        notify.write(path, NOTICE | {"text": str(number)})
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert kept[-1]["text"] == "29"
    assert path.stat().st_size < 700
    assert sorted(file.name for file in path.parent.iterdir()) == ["notifications.jsonl", "notifications.jsonl.1"]
