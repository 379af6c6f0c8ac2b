"""A real service under constant load from several clients, while all of its artifacts are replaced."""

from __future__ import annotations

import platform

import pytest

from pliant.protocol import Changed, Drop, replay
from pliant.serving.journal import read
from pliant.serving.launch import launch
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from tests.fixtures.clients import PATIENCE, ask, asking, call, free_port, wait_for
from tests.fixtures.tokens.published import CLASSES, publish, publish_all, settings_for
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

pytestmark = pytest.mark.slow

DEVICE = f"cpu-{platform.machine()}-1t"
SHAPES = ["round", "square"]


@pytest.fixture
def folder(tmp_path):
    publish_all(tmp_path, DEVICE)
    return tmp_path


def test_nobody_is_dropped_while_tasks_profile_and_backbone_are_replaced_under_load(folder):
    service = launch(settings_for(folder, journal=folder / "journal.jsonl"), folder, free_port(), folder / "log")
    try:
        service.wait_until_ready(PATIENCE)
        with asking(service, ["digits"] * 4) as clients:
            wait_for(lambda: len(clients.answers) > 20)
            register_a_task(service)
            digest = call(service, "GET", "/v1/status")[1]["backbone"]["digest"]
            with asking(service, ["shapes"] * 2) as others:
                take_up(service, folder, clients, tiny_task("digits", CLASSES, digest, seed=2))
                take_up(service, folder, clients, tiny_profile(digest, DEVICE))
                take_up_a_backbone(service, folder, clients)
                wait_for(lambda: others.versions("shapes")[-1]["backbone"] == 2)
    finally:
        assert service.stop(PATIENCE) == 0
    for status, answer, _ in clients.answers + others.answers:
        assert (status, answer.get("on_time")) == (200, True), answer
    assert [tuple(v[kind] for kind in ("backbone", "task", "profile")) for v in clients.versions("digits")] == [
        (1, 1, 1),
        (1, 2, 1),
        (1, 2, 2),
        (2, 3, 3),
    ]
    check_journal(folder)


def register_a_task(service) -> None:
    assert ask(service, "shapes")[0] == 404
    assert call(service, "POST", "/v1/tasks", b'{"name": "shapes", "version": 1}')[0] == 200
    assert ask(service, "shapes")[1]["label"] in SHAPES


def take_up(service, folder, clients, artifact) -> None:
    """Publish an artifact, wait until it is served, and until all four clients have answers after that."""
    publish(folder, artifact)
    status, told = call(service, "POST", "/v1/refresh", b"{}")
    assert (status, told["outcome"]) == (200, "changed"), told
    answered = len(clients.answers)
    wait_for(lambda: len(clients.answers) > answered + 20)


def take_up_a_backbone(service, folder, clients) -> None:
    """Move half of the aliases first, upon which nothing changes."""
    (new,) = publish(folder, tiny_backbone(seed=1))
    status, told = call(service, "POST", "/v1/refresh", b"{}")
    assert (status, told["outcome"]) == (200, "held"), told
    publish(folder, tiny_profile(new, DEVICE), tiny_task("shapes", SHAPES, new, seed=3))
    take_up(service, folder, clients, tiny_task("digits", CLASSES, new, seed=3))


def check_journal(folder) -> None:
    """Each generation's journal is complete, rejects no request, and replays to the last decision."""
    changes = []
    for path in (folder / "journal.jsonl", folder / "journal-2.jsonl", folder / "journal-3.jsonl"):
        journal = read(path)
        facts = [entry.event.facts for entry in journal if isinstance(entry.event, Changed)]
        assert not any(isinstance(action, Drop) for entry in journal for action in entry.actions)
        assert replay(make("default", Knowledge.of(facts[0])), journal) == journal
        changes.append(len(facts))
    assert changes == [
        3,
        1,
        1,
    ]  # of each, what was known at the start; of the first, a task and another version of one too
