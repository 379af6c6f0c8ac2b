"""What further devices earn: in the simulator the target is met, and live each number of devices is served its own load."""

from __future__ import annotations

import math
from contextlib import contextmanager

import pytest

from benchmarks.contenders import Turn
from benchmarks.tokens import devices
from benchmarks.tokens.devices import Live, LiveConfig, Row, over_one, simulated, simulated_target, table
from pliant.progress import silent
from pliant.tokens.published import FIGURE_4B
from tests.fixtures.load_samples import answered


def test_two_devices_earn_twice_of_what_one_does_in_the_simulator(monkeypatch):
    monkeypatch.setattr(devices, "COUNTS", (1, 2))
    monkeypatch.setattr(devices, "TABLES", {"figure 4b": FIGURE_4B})
    rows = simulated(1, 1.0)
    assert simulated_target(rows).met, table(rows)
    assert [row.devices for row in rows] == [1, 2]


def test_the_ground_where_two_devices_earn_least_is_judged():
    rows = [
        Row("a", 1, 10, 4.0, 5.0),
        Row("a", 2, 22, 7.7, 11.0),
        Row("b", 1, 10, 4.0, 5.0),
        Row("b", 2, 20, 8.0, 10.0),
    ]
    target = simulated_target(rows)
    assert target.measured == 1.75 and not target.met
    assert table(rows)[1] == ("a", "2", "2x", "22", "7.7", "0.700", "1.75")
    assert math.isnan(over_one([Row("a", 1, 0, 0.0, 0.0)], rows[0]))


def test_live_one_process_a_device_gets_its_share_of_the_load(monkeypatch):
    served, sent = [], []

    @contextmanager
    def address(policy, device):
        served.append((policy, device))
        yield f"http://{device}"

    @contextmanager
    def stage(_name):
        yield silent

    async def capacity(*_args):
        return 100.0

    def send(url, load, _pool, _seed):
        sent.append((url, len(load)))
        return Turn([answered(request) for request in load], 0.25)

    monkeypatch.setattr(devices, "warm", lambda *_args, **_more: None)
    monkeypatch.setattr(devices, "capacity", capacity)
    monkeypatch.setattr(devices, "send", send)
    result = devices.live(address, {"digit": []}, LiveConfig(seconds=5.0), stage)
    assert served == [("pets", "cpu"), ("default", "cpu"), ("default", "cpu,cpu")]
    assert [url for url, _ in sent] == ["http://cpu", "http://cpu,cpu"]
    assert sent[1][1] == pytest.approx(2 * sent[0][1], rel=0.15)
    assert isinstance(result, Live) and result.target().met and result.plain()["generator_busy"] == 0.25
