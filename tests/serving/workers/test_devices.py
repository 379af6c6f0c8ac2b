"""Devices of a service are those that its settings name, and of the class that its artifacts were profiled on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pliant.errors import DeviceError
from serving.bins.settings import BinsSettings
from serving.workers.devices import SameDevice, check_devices, devices


def profiled_on(device: str) -> SimpleNamespace:
    return SimpleNamespace(device=device)


def test_devices_are_listed_in_their_order():
    assert devices(BinsSettings(device="cuda:1, cuda:0,cpu")) == ["cuda:1", "cuda:0", "cpu"]


def test_a_later_catalog_must_be_of_the_first_ones_class():
    same = SameDevice("tasks", any_profile=False)
    for device in ("a GPU", "a GPU"):
        same.check(profiled_on(device))
    for _ in range(2):
        with pytest.raises(DeviceError, match="the new tasks were profiled on cpu, but this device is a GPU"):
            same.check(profiled_on("cpu"))
    same.check(profiled_on("a GPU"))


def test_any_profile_will_do_where_the_settings_say_so():
    same = SameDevice("tasks", any_profile=True)
    for device in ("a GPU", "cpu"):
        same.check(profiled_on(device))
    check_devices(BinsSettings(any_profile=True), SimpleNamespace())  # nothing is looked at


def test_every_device_is_held_against_the_profile(monkeypatch):
    from serving.workers import on_device

    checked = []
    monkeypatch.setattr(on_device, "check_device", lambda *arguments: checked.append(arguments))
    check_devices(BinsSettings(device="cuda:0, cuda:1", threads=3), profiled_on("a GPU"))
    assert checked == [("a GPU", "cuda:0", 3), ("a GPU", "cuda:1", 3)]
