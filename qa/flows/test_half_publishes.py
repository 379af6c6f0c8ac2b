"""A publisher that dies anywhere leaves a registry that can be served; two of them never mix their versions."""

from __future__ import annotations

import threading

import pytest

from pliant.registry.mlflow_store import CHAMPION, PREVIOUS
from tests.fixtures.half_publishes import ENCODER, PLAN, Publisher, Steps, stepping
from tests.fixtures.light_mlflow import lighten


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    lighten(monkeypatch)
    return Publisher(tmp_path)


def test_the_single_models_aliases_move_the_parts_first_and_what_names_them_last(publisher, monkeypatch):
    publisher.publish(0)
    steps = Steps()
    with stepping(monkeypatch, publisher.folder / "artifacts", steps):
        publisher.publish(1)
    aliases = [tuple(name.split()[1:]) for name in steps.names if name.startswith("set_registered_model_alias")]
    release = "pliant-release-bins"
    assert aliases == [
        (ENCODER, "challenger"),
        (PLAN, "challenger"),
        (release, PREVIOUS),
        (release, CHAMPION),
        (ENCODER, PREVIOUS),
        (ENCODER, CHAMPION),
        (PLAN, PREVIOUS),
        (PLAN, CHAMPION),
    ]


def test_publishers_in_a_race_wait_for_each_other_and_lose_nothing(publisher):
    streams = ["colours", "meanings", "sounds", "tastes"]
    publisher.publish(0)
    for stream in streams:
        Publisher(publisher.folder, stream).drafts(1)
    failed: list[BaseException] = []

    def publish(stream: str) -> None:
        try:
            Publisher(publisher.folder, stream).publish(1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert publisher.served() == dict.fromkeys(streams, 1)
