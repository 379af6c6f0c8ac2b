"""What people wrote or sent is kept within bounds, where the settings say so, and is forgotten; labels in their file."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry

from pliant.outcomes.files import forget, read_inputs
from pliant.serving.outcomes.inputs import Inputs
from pliant.serving.outcomes.keeper import Keeper
from pliant.serving.outcomes.label_file import LabelFile
from pliant.serving.outcomes.outcomes import Outcomes
from pliant.serving.outcomes.store import Store

DAYS = 30 * 86_400.0


def test_a_label_file_goes_on_in_a_new_one_and_keeps_the_older(tmp_path):
    file = LabelFile(tmp_path, max_bytes=100)
    for number in range(10):
        file.append([f"{number}" * 60])
    assert (tmp_path / "labels.jsonl.1").stat().st_size == 122
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 244
    file.append([])


def test_inputs_are_kept_within_their_bounds_and_forgotten(tmp_path):
    now = [0.0]
    inputs = Inputs(tmp_path, 100.0, lambda: now[0], max_count=5, max_bytes=1000)
    for number in range(8):
        inputs.keep(str(number), "t", "json", json.dumps(["private words"]).encode())
    inputs.write()
    assert [entry.id for entry in read_inputs(tmp_path)] == ["3", "4", "5", "6", "7"]
    assert [entry.content for entry in read_inputs(tmp_path, {"4"})] == [b'["private words"]']
    now[0] = 50.0
    for number in range(3):
        inputs.keep(f"large {number}", "t", "uint8 20 20 1", bytes(400))
    inputs.write()
    assert [entry.id for entry in read_inputs(tmp_path)] == ["large 1", "large 2"], "the oldest go first"
    assert sum(len(entry.content) for entry in read_inputs(tmp_path)) <= 1000
    inputs.keep("x", "t", "json", b'["private words"]')
    inputs.write()
    assert forget(tmp_path, ["x", "unknown"]) == 1
    now[0] = 151.0
    inputs.write()
    assert list(read_inputs(tmp_path)) == []
    inputs.keep("y", "t", "json", b'["private words"]')
    inputs.write()
    assert forget(tmp_path) == 1 and list(read_inputs(tmp_path)) == []
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"private" not in content
    inputs.close()


def test_inputs_that_come_faster_than_the_disk_are_not_kept(tmp_path):
    inputs = Inputs(tmp_path, 100.0, lambda: 0.0)
    for number in range(5):
        inputs.keep(str(number), "t", "json", bytes(10 << 20))
    inputs.write()
    assert len(list(read_inputs(tmp_path))) == 3
    inputs.close()


def test_without_inputs_there_is_nothing_to_forget(tmp_path):
    assert forget(tmp_path) == 0 and list(read_inputs(tmp_path)) == []
    keeper = Keeper(Store(tmp_path, 10, DAYS))
    outcomes = Outcomes(CollectorRegistry(), 10, keeper=keeper)
    outcomes.keep_input("x", "t", "json", b"words")
    outcomes.close()
    assert not outcomes.keeps_inputs and not (tmp_path / "inputs.db").exists()
