"""A device process has the threads and the class of device that its plan says, and a lack of memory is a sentence."""

from __future__ import annotations

import pytest
import torch

from pliant.device import device_class
from pliant.errors import DeviceError
from serving.workers.device_plan import DevicePlan
from serving.workers.on_device import check_device, prepare


@pytest.fixture(autouse=True)
def same_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_threads_are_set_where_the_plan_names_them():
    prepare(DevicePlan("cpu", 2, None, ()))
    assert torch.get_num_threads() == 2
    prepare(DevicePlan("cpu", None, None, ()))
    assert torch.get_num_threads() == 2


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
