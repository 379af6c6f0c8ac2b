"""Devices of a service are those that its settings name, and of the class that its artifacts were profiled on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from pliant.device import device_class
from pliant.errors import DeviceError, InputError, WorkerError
from pliant.fallbacks import Collector, Fallback
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.lifecycle.system import check_devices
from pliant.serving.workers.devices import BuildPlan, DevicePlan, SameDevice, alone, auto_device, devices, free_memory
from pliant.serving.workers.on_device import check_device, prepare, usable_precision


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


@dataclass(frozen=True, slots=True)
class Plan(BuildPlan):
    BUILDER: ClassVar[str] = f"{__name__}:make"

    plan: DevicePlan


def on(device: str, named: str = "") -> Plan:
    return Plan(DevicePlan(device, 2, "a GPU", (1,), named))


@pytest.mark.parametrize(
    ("device", "inherited", "seen_as", "visible"),
    [
        ("cuda:1", {}, "cuda:0", "1"),
        ("cuda", {}, "cuda", "0"),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "6, 7"}, "cuda:0", "7"),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "cuda", "GPU-a"),
        ("cpu", {"CUDA_VISIBLE_DEVICES": "0"}, "cpu", ""),
    ],
)
def test_a_process_sees_its_own_device_alone_and_people_read_the_name_that_they_gave(
    device, inherited, seen_as, visible
):
    build, variables = alone(on(device), inherited)
    assert variables == {"CUDA_VISIBLE_DEVICES": visible}
    assert (build.plan.device, build.plan.name) == (seen_as, device)


@pytest.fixture(autouse=True)
def same_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_device_of_another_class_is_refused_and_threads_belong_to_the_class():
    torch.set_num_threads(1)
    present = device_class("cpu")
    check_device(present, "cpu", 1)
    prepare(DevicePlan("cpu", 1, present, ()))
    with pytest.raises(DeviceError, match=f"measured on another, but this device is {present}: profile again"):
        prepare(DevicePlan("cpu", 1, "another", ()))
    with pytest.raises(DeviceError, match="--threads"):
        check_device(present, "cpu", 2)
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("device", "selected"), [("cuda:1", [torch.device("cuda:1")]), ("cuda", []), ("cpu", [])])
def test_a_device_process_makes_its_gpu_the_present_one_before_anything_else(monkeypatch, device, selected):
    made = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "set_device", made.append)
    prepare(DevicePlan(device, None, None, ()))
    assert made == selected


def test_a_gpu_that_is_not_there_is_refused_in_a_sentence(monkeypatch):
    def missing(device):
        raise AssertionError("Invalid device id")

    monkeypatch.setattr(torch.cuda, "get_device_name", missing)
    with pytest.raises(InputError, match=r"device is cuda:7, but must be one that torch finds .*\(Invalid device id\)"):
        prepare(DevicePlan("cuda:7", None, None, ()))


def test_a_precision_that_this_device_lacks_is_float32_and_a_fallback(monkeypatch):
    noted = Collector()
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    assert usable_precision("bfloat16", "cpu", "small") == "bfloat16"
    assert noted.take() == ()
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    assert usable_precision("bfloat16", "cpu", "small") == "float32"
    reason = "small computes in float32, as cpu has no instructions for bfloat16"
    assert noted.take() == (Fallback("precision", reason),)
