"""A device process has the threads and the class of device that its plan says, and a lack of memory is a sentence."""

from __future__ import annotations

import pytest
import torch

from pliant.device import device_class
from pliant.errors import DeviceError, InputError
from pliant.fallbacks import Collector, Fallback
from pliant.serving.workers.devices import DevicePlan
from pliant.serving.workers.on_device import check_device, prepare, usable_precision


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
