"""After a power cut, in which everything is lost that was not synced, the registry can be served."""

from __future__ import annotations

from tests.fixtures.half_publishes import Publisher
from tests.fixtures.power_cuts import recorded


def test_what_mlflow_copies_is_on_the_disk_before_it_is_released(tmp_path, monkeypatch):
    publisher = Publisher(tmp_path)
    with recorded(monkeypatch) as disk:
        publisher.publish(0)
    lost = disk.cut(tmp_path / "artifacts")
    assert publisher.served() == {"colours": 0}
    assert not [path for path in lost if "models" in path.parts]
