"""A CPU is named by its architecture and threads; a device that is not there is refused; threads are as before."""

from __future__ import annotations

import platform

import pytest
import torch

from pliant.device import (
    describe_device,
    device_class,
    free_bytes,
    is_out_of_memory,
    reporting_memory,
    resolve_device,
    threads,
)
from pliant.errors import InputError, WorkerError


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


@pytest.mark.parametrize(("gpu", "taken"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_the_gpu_where_there_is_one_and_every_other_name_stays(monkeypatch, gpu, taken):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert resolve_device("auto") == taken
    assert [resolve_device(name) for name in ("cpu", "cuda:1", "nowhere")] == ["cpu", "cuda:1", "nowhere"]


def test_a_gpu_is_described_with_its_model_and_a_cpu_by_its_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    assert (describe_device("cuda:1"), describe_device("cpu")) == ("cuda:1 (Some GPU)", "cpu")
    assert device_class("cuda:1") == "Some GPU"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), r"cuda:1 has no room for the model \(MemoryError\)"),
        (torch.OutOfMemoryError("tried 2 GiB\nof 1"), r"cuda:1 has no room for the model \(tried 2 GiB\)$"),
        (RuntimeError("could not create a primitive"), r"no room for the model \(could not create a primitive\)$"),
    ],
)
def test_a_lack_of_memory_is_told_in_one_line(error, sentence):
    with pytest.raises(WorkerError, match=sentence), reporting_memory("cuda:1"):
        raise error


def test_other_errors_and_none_pass():
    with reporting_memory("cpu"):
        pass
    for error in (ValueError("shape"), RuntimeError("lost")):
        with pytest.raises(type(error), match=str(error)), reporting_memory("cpu"):
            raise error


def test_what_torchs_own_allocator_says_is_a_lack_of_memory():
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(refused.value) and not is_out_of_memory(OSError("out of memory"))


def test_what_torch_keeps_of_a_gpu_for_later_counts_as_free(monkeypatch):
    for name, value in (("mem_get_info", (700, 1000)), ("memory_reserved", 200), ("memory_allocated", 150)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert free_bytes("cuda:1") == 750
