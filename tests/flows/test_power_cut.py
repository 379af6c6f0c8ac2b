"""After a power cut, in which everything is lost that was not synced, the registry can be served."""

from __future__ import annotations

import pytest

from tests.fixtures.half_publishes import Killed, Publisher, Steps, lighten, stepping
from tests.fixtures.power_cuts import recorded


def test_what_mlflow_copies_is_on_the_disk_before_it_is_released(tmp_path, monkeypatch):
    publisher = Publisher(tmp_path)
    with recorded(monkeypatch) as disk:
        publisher.publish(0)
    lost = disk.cut(tmp_path / "artifacts")
    assert publisher.served() == {"colours": 0}
    assert not [path for path in lost if "models" in path.parts]


def test_a_power_cut_at_any_write_of_the_registry_leaves_what_can_be_served(tmp_path, monkeypatch):
    lighten(monkeypatch)
    publisher, steps = Publisher(tmp_path), Steps()
    with recorded(monkeypatch) as disk:
        publisher.publish(0)
        with stepping(monkeypatch, tmp_path / "artifacts", steps):
            publisher.publish(1)
        seed = 1
        for kill in [n for n, name in enumerate(steps.names) if name.startswith(("set_reg", "create_model"))]:
            former, seed = publisher.served()["colours"], seed + 1
            with stepping(monkeypatch, tmp_path / "artifacts", Steps(kill)), pytest.raises(Killed):
                publisher.publish(seed)
            disk.cut(tmp_path / "artifacts")
            assert publisher.served()["colours"] in (former, seed)
