"""One publisher at a time, in a registry of any kind; a lock whose owner is gone or late holds nobody up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pliant.errors import RegistryError
from pliant.registry.lock import LEASE_SECONDS, SAFE_SECONDS, Lease, file_lock, lease
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.light_mlflow import lay_database, light
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
    registry = MlflowRegistry(lay_database(tmp_path / "mlflow.db"), "e", tmp_path / "artifacts")
    for number in (1, 2):
        with light(), registry.run("release") as run:
            version = registry.publish(run, shelf.package("profile")).version
            released = registry.commit({PROFILE: version}, run)
        assert (released.number, released.versions) == (number, {PROFILE: number})
        assert registry.versions("pliant-tokens-") == {PROFILE: number}
    assert registry.names("pliant-lock-") == []
    assert registry.release("tokens", "previous").number == released.former == 1
