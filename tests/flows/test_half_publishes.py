"""A publisher that dies anywhere leaves a registry that can be served; two of them never mix their versions."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest

from pliant.errors import RegistryError
from pliant.registry.mlflow_store import CHAMPION, PREVIOUS
from tests.fixtures.half_publishes import ENCODER, PLAN, Killed, Publisher, Steps, lighten, stepping


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    lighten(monkeypatch)
    return Publisher(tmp_path)


@pytest.mark.slow
def test_a_publisher_killed_at_every_step_leaves_one_release_or_the_other_and_the_next_one_mends_it(
    publisher, monkeypatch
):
    steps = Steps()
    publisher.publish(0)
    with stepping(monkeypatch, publisher.folder / "artifacts", steps):
        publisher.publish(1)
    seed = 1
    assert len(steps.names) > 30 and any(name.startswith("open") for name in steps.names)
    outcomes = set()
    for kill in points(steps.names):
        former, seed = publisher.served()["colours"], seed + 1
        dying = Steps(kill)
        with stepping(monkeypatch, publisher.folder / "artifacts", dying), pytest.raises(Killed):
            publisher.publish(seed)
        served = publisher.served()["colours"]
        assert served in (former, seed), dying.names[-3:]
        outcomes.add(served == seed)
        if kill % 2 == 0:
            publisher.publish(seed)
            assert publisher.served() == {"colours": seed}
    assert outcomes == {True, False}
    publisher.publish(seed)
    registry = publisher.registry
    assert registry.aliases("pliant-bins-") == registry.versions("pliant-bins-")


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


@pytest.mark.slow
def test_two_publishers_that_meet_at_any_step_never_mix_even_without_a_lock(publisher, monkeypatch):
    monkeypatch.setattr("pliant.registry.mlflow_store.file_lock", lambda *_: _unlocked())
    other = Publisher(publisher.folder, "meanings")
    publisher.publish(0)
    other.publish(0)
    steps = Steps()
    with stepping(monkeypatch, publisher.folder / "nothing", steps):
        publisher.publish(1)
    seed, stopped = 1, 0
    for number in (index + 1 for index in points(steps.names)):
        seed += 1

        def between(step: int, number: int = number, seed: int = seed) -> None:
            if step == number:
                Publisher(publisher.folder).publish(100 + seed)  # the same models
                other.publish(seed)

        with stepping(monkeypatch, publisher.folder / "nothing", Steps(between=between)):
            try:
                publisher.publish(seed)
            except RegistryError as error:
                stopped += 1
                assert "another publisher released bins meanwhile: run it again" in str(error)
        served = publisher.served()  # checks that what is served together belongs together
        assert served["colours"] in (seed, 100 + seed)
    assert stopped


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


def points(names: list[str]) -> list[int]:
    """Return the steps at which versions and aliases are written, and every sixth of the others; the attack takes all."""
    return [n for n, name in enumerate(names) if n % 6 == 0 or name.startswith(("set_reg", "create_model", "open"))]


def _unlocked():
    return nullcontext(lambda: None)
