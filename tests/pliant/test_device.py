"""A CPU is named by its architecture and threads; a device that is not there is refused; threads are as before."""

from __future__ import annotations

import platform

import pytest
import torch

from pliant.device import device_class, threads
from pliant.errors import InputError


def test_a_cpu_with_other_threads_is_another_class_of_device():
    with threads(1):
        assert device_class("cpu") == f"cpu-{platform.machine()}-1t"
    with threads(2):
        assert device_class("cpu") == f"cpu-{platform.machine()}-2t"


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_with_one_line_of_the_reason(device):
    with pytest.raises(InputError, match=f"device is {device}, but must be one that torch finds") as caught:
        device_class(device)
    assert "\n" not in str(caught.value)


def test_threads_are_as_before_also_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before
    with threads(None):
        assert torch.get_num_threads() == before


def test_less_than_one_thread_is_refused():
    with pytest.raises(InputError, match="threads is 0, but must be at least 1"), threads(0):
        pass


def test_a_gpu_is_called_by_its_model(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Some GPU {device.index}")
    assert device_class("cuda:1") == "Some GPU 1"


def test_one_thread_is_the_least():
    with threads(1):
        assert torch.get_num_threads() == 1
