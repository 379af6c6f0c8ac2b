"""Devices of a service are those that its settings name, and of the class that its artifacts were profiled on."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from pliant.errors import DeviceError, WorkerError
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.lifecycle.system import check_devices
from pliant.serving.workers.devices import SameDevice, auto_device, devices, free_memory


def profiled_on(device: str) -> SimpleNamespace:
    return SimpleNamespace(device=device)


@pytest.fixture
def unknown():
    """What "auto" stands for is asked anew, before and after the test."""
    auto_device.cache_clear()
    yield
    auto_device.cache_clear()


def test_where_torch_cannot_be_asked_the_sentence_says_to_name_a_device(monkeypatch, unknown):
    failed = SimpleNamespace(returncode=1, stdout="", stderr="Traceback\nImportError: no torch\n")
    monkeypatch.delitem(sys.modules, "pliant.device", raising=False)
    monkeypatch.setattr(subprocess, "run", lambda *_arguments, **_options: failed)
    with pytest.raises(WorkerError, match=r"which devices this machine has; name one with --device \(ImportError: no"):
        devices(BinsSettings())


def test_how_much_a_gpu_has_free_is_asked_in_another_process_and_a_cpu_in_this_one(monkeypatch):
    asked = []

    def run(command, **_options):
        asked.append(command[-1])
        return SimpleNamespace(returncode=0, stdout="123\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("pliant.memory.free_memory", lambda: 5)
    assert (free_memory("cuda:1"), free_memory("cpu"), len(asked)) == (123, 5, 1)
    assert asked[0].endswith("print(device.free_bytes('cuda:1'))")


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
    from pliant.serving.workers import on_device

    checked = []
    monkeypatch.setattr(on_device, "check_device", lambda *arguments: checked.append(arguments))
    check_devices(BinsSettings(device="cuda:0, cuda:1", threads=3), profiled_on("a GPU"))
    assert checked == [("a GPU", "cuda:0", 3), ("a GPU", "cuda:1", 3)]
