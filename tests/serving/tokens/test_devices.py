"""A real service on two devices: both serve, one that dies leaves the other serving, and the journal names them."""

from __future__ import annotations

import platform
import signal

import pytest

from tests.fixtures.clients import ask, call, wait_for
from tests.fixtures.live import ConcurrentCalls, processes, running
from tests.fixtures.tokens.published import publish_all, settings_for

pytestmark = pytest.mark.slow

DEVICE = f"cpu-{platform.machine()}-1t"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_all(folder, DEVICE)
    return folder


@pytest.fixture(scope="module")
def service(folder):
    with running(settings_for(folder, device="cpu,cpu", journal=folder / "journal.jsonl"), folder) as service:
        yield service


def up(service) -> list[bool]:
    return [device["up"] for device in call(service, "GET", "/v1/status")[1]["devices"]]


def test_each_device_is_a_process_and_a_task_registered_later_reaches_both(service):
    assert len(processes(service)) == 2 and up(service) == [True, True]
    assert call(service, "POST", "/v1/tasks", b'{"name": "shapes", "version": 1}')[0] == 200
    answers = ConcurrentCalls(lambda _: ask(service, "shapes"), 20).answers()
    assert all(status == 200 and answer["label"] in ("round", "square") for status, answer in answers)


def test_while_a_device_is_held_and_killed_the_other_one_answers(service):
    held, other = processes(service)
    held.send_signal(signal.SIGSTOP)
    hanging = ConcurrentCalls(lambda _: ask(service, deadline=30), 8)
    wait_for(lambda: len(hanging.so_far()) >= 4)  # whatever the held one has, the other goes on
    assert all(status == 200 for status, _ in hanging.so_far())
    held.kill()
    assert ask(service)[0] == 200
    assert [status for status, _ in hanging.answers()] == [200] * 8, "what the dead one had runs on the other"
    wait_for(lambda: up(service) == [True, True])
    assert {other.pid} < {process.pid for process in processes(service)}
    assert ask(service, "shapes")[0] == 200, "both have the task that was registered"
