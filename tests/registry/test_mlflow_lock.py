"""One publisher at a time, in a registry of any kind; a lock whose owner is gone or late holds nobody up."""

from __future__ import annotations

import fcntl
import os
import socket
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from pliant.errors import RegistryError
from pliant.registry import mlflow_lock
from pliant.registry.mlflow_lock import LEASE_SECONDS, OWNER, SAFE_SECONDS, UNTIL, Lease, file_lock, lease
from pliant.registry.mlflow_store import MlflowRegistry
from tests.registry.conftest import PROFILE


class Client:
    """What the lease asks of MLflow's client."""

    def __init__(self) -> None:
        self.models: dict[str, SimpleNamespace] = {}

    def create_registered_model(self, name, tags):
        self.models[name] = SimpleNamespace(name=name, tags=dict(tags))

    def delete_registered_model(self, name):
        self.models.pop(name, None)

    def search_registered_models(self, filter_string, max_results):
        assert filter_string == "name LIKE 'pliant-lock-bins-%'" and max_results
        return list(self.models.values())


def test_a_lease_is_held_by_one_publisher_at_a_time_and_left_free():
    client, clock = Client(), SimpleNamespace(now=100.0)
    first, second = (Lease(client, "bins", clock=lambda: clock.now) for _ in range(2))
    assert first.take() and not second.take()
    assert list(client.models) == [first.name]
    first.check()
    assert "process " in second.holder()
    first.free()
    assert second.take()


def test_two_that_come_at_the_same_time_both_step_back():
    client = Client()
    first, second = (Lease(client, "bins") for _ in range(2))
    create = client.create_registered_model

    def both(name, tags):
        create(name, tags)
        if name == first.name:
            assert not second.take()

    client.create_registered_model = both
    # The second comes between the first one's writing and its looking, and sees it.
    assert first.take() and not second.take()


def test_a_lease_that_has_run_out_is_taken_over_and_its_owner_notices():
    client, clock = Client(), SimpleNamespace(now=100.0)
    stalled, next_one = (Lease(client, "bins", clock=lambda: clock.now) for _ in range(2))
    assert stalled.take()
    clock.now += LEASE_SECONDS - SAFE_SECONDS + 1
    with pytest.raises(RegistryError, match="was held up and has lost its lock"):
        stalled.check()
    assert not next_one.take()
    clock.now += SAFE_SECONDS
    assert next_one.take()
    with pytest.raises(RegistryError, match="has lost its lock"):
        stalled.check()
    next_one.check()


def test_who_waits_in_vain_is_told_who_holds_it(tmp_path):
    client = Client()
    with (
        lease(client, "bins") as check,
        pytest.raises(RegistryError, match=r"locked by process \d+ of .*: another release is being published"),
        lease(client, "bins", wait=0.0),
    ):
        pass
    with pytest.raises(RegistryError, match="has lost its lock"):
        check()
    with file_lock(tmp_path / "mlflow.db", "bins"), file_lock(tmp_path / "mlflow.db", "tokens"):
        again = file_lock(tmp_path / "mlflow.db", "bins", wait=0.0)
        with pytest.raises(RegistryError, match=r"bins\.lock is held by process"):
            again.__enter__()
    with file_lock(tmp_path / "mlflow.db", "bins"):
        pass


def test_releases_are_committed_under_a_lease_where_the_registry_is_no_file(tmp_path, shelf, monkeypatch):
    by_lease = lambda self, system: lease(self.connect(), system)  # noqa: E731
    monkeypatch.setattr("pliant.registry.mlflow_store.MlflowRegistry.locked", by_lease)
    registry = MlflowRegistry(f"sqlite:///{tmp_path / 'mlflow.db'}", "e", tmp_path / "artifacts")
    for number in (1, 2):
        with registry.run("release") as run:
            version = registry.publish(run, shelf.package("profile")).version
            released = registry.commit({PROFILE: version}, run)
        assert (released.number, released.versions) == (number, {PROFILE: number})
        assert registry.versions("pliant-tokens-") == {PROFILE: number}
    assert registry.names("pliant-lock-") == []
    assert registry.release("tokens", "previous").number == released.former == 1
    assert registry.commit({}, without=[PROFILE]).versions == {}


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE"])
def test_a_lock_that_somebody_removed_is_gone_and_one_that_cannot_be_removed_is_an_error(code):
    client, errors = Client(), ["RESOURCE_DOES_NOT_EXIST", code]

    def refuse(name):
        error = MlflowException(name)
        error.error_code = errors.pop(0)
        raise error

    client.delete_registered_model = refuse
    with lease(client, "bins"):
        pass
    client.models.clear()
    with pytest.raises(MlflowException), lease(client, "bins"):
        pass


OURS = f"process {os.getpid()} of {socket.gethostname()}"


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 50.0, []

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(mlflow_lock, "time", clock := Clock())
    return clock


@pytest.mark.parametrize(("content", "holder"), [("", "another process"), ("x" * 300, "x" * 200)])
def test_who_comes_too_late_is_told_what_the_file_says_of_its_owner(tmp_path, clock, content, holder):
    path = tmp_path / "mlflow.db.bins.lock"
    path.write_text(content)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        why = f"{path} is held by {holder}: another release is being published; try again when it is done"
        with pytest.raises(RegistryError) as caught, file_lock(tmp_path / "mlflow.db", "bins"):
            pass
    assert str(caught.value) == why
    assert path.read_text() == content


def test_a_lock_that_cannot_be_opened_is_a_sentence(tmp_path):
    path = tmp_path / "none" / "mlflow.db.bins.lock"
    with pytest.raises(RegistryError) as caught, file_lock(tmp_path / "none" / "mlflow.db", "bins"):
        pass
    assert str(caught.value) == f"the lock {path} cannot be opened: No such file or directory"


@pytest.mark.parametrize("hold", [lambda folder: file_lock(folder / "m.db", "bins"), lambda _: lease(Client(), "bins")])
def test_a_publisher_looks_again_some_times_a_second_for_a_minute(tmp_path, clock, monkeypatch, hold):
    monkeypatch.setattr(mlflow_lock, "_lock_file", lambda file: False)
    monkeypatch.setattr(Lease, "take", lambda self: False)
    with pytest.raises(RegistryError, match="another release is being published"), hold(tmp_path):
        pass
    assert 60.0 < sum(clock.slept) <= 60.3
    assert 0.05 <= min(clock.slept) < 0.1 and 0.25 < max(clock.slept) <= 0.3


def test_a_lease_says_who_holds_it_until_when_and_ends_at_that_second():
    client, clock = Client(), SimpleNamespace(now=100.0)
    held, other = (Lease(client, "bins", clock=lambda: clock.now) for _ in range(2))
    assert held.take() and held.name.startswith("pliant-lock-bins-") and len(held.name) == len("pliant-lock-bins-") + 32
    assert client.models[held.name].tags == {OWNER: OURS, UNTIL: "220.000"}
    clock.now = 220.0 - SAFE_SECONDS
    held.check()
    clock.now = 219.999
    assert other.holder() == OURS
    clock.now = 220.0
    assert other.holder() == "another publisher" and not client.models


def test_a_lease_is_given_back_also_where_its_holder_fails():
    client = Client()
    with pytest.raises(ZeroDivisionError), lease(client, "bins") as check:
        check()
        assert len(client.models) == 1
        raise ZeroDivisionError
    assert not client.models
