"""Devices: their names, threads, memory within containers, and the precisions that they have instructions for."""

from __future__ import annotations

import platform

import pytest
import torch
from torch import nn

from pliant import precision
from pliant.device import describe_device, device_class, free_bytes, reporting_memory, resolve_device, threads
from pliant.errors import InputError, WorkerError
from pliant.memory import free_memory
from pliant.precision import check_precision, convert, dtype_of, half_precision, has_bfloat16, is_fast, usable_precision


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


def test_what_torch_keeps_of_a_gpu_for_later_counts_as_free(monkeypatch):
    for name, value in (("mem_get_info", (700, 1000)), ("memory_reserved", 200), ("memory_allocated", 150)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert free_bytes("cuda:1") == 750


MEMINFO = "MemTotal:       4000 kB\nMemFree:         100 kB\nMemAvailable:   2000 kB\n"


def machine(root, cgroup: str, files: dict[str, str]):
    contents = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, **files}
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


TOP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("cgroup", "files", "free"),
    [
        ("", {}, 2_048_000),
        ("0::/\n", {f"{TOP}/memory.max": "max\n"}, 2_048_000),
        ("0::/\n", {f"{TOP}/memory.max": "1000000\n", f"{TOP}/memory.current": "600000\n"}, 400_000),
        ("0::/\n", {f"{TOP}/memory.max": "1000000\n", f"{TOP}/memory.current": "1200000\n"}, 0),
        ("0::/a/b\n", {f"{TOP}/a/memory.max": "900000", f"{TOP}/a/memory.current": "1"}, 899_999),
        ("0::/a/b\n", {f"{TOP}/a/b/memory.max": "9000000", f"{TOP}/a/memory.max": "500000"}, 500_000),
        (
            "4:memory:/a\n3:cpu:/b\n",
            {
                f"{TOP}/memory/a/memory.limit_in_bytes": "1000000",
                f"{TOP}/memory/a/memory.usage_in_bytes": "600000",
                f"{TOP}/memory/a/memory.stat": "cache 1\ntotal_inactive_file 50000\n",
                f"{TOP}/b/memory.max": "5",
            },
            450_000,
        ),
        (
            "0::/\n",
            {
                f"{TOP}/memory.max": "1000000",
                f"{TOP}/memory.current": "600000",
                f"{TOP}/memory.stat": "inactive_file 7",
            },
            400_007,
        ),
    ],
    ids=["no cgroups", "no limit", "a limit", "beyond it", "of one above", "the least", "version 1", "with a cache"],
)
def test_what_is_free_is_the_least_of_the_systems_and_of_each_containers(tmp_path, cgroup, files, free):
    assert free_memory(machine(tmp_path, cgroup, files)) == free


ASKED = {
    "onednn": (torch.backends.mkldnn, "is_available"),
    "onednn_bf16": (torch.ops.mkldnn, "_is_mkldnn_bf16_supported"),
    "avx512_bf16": (torch.cpu, "_is_avx512_bf16_supported"),
    "amx": (torch.cpu, "_is_amx_tile_supported"),
    "capability": (torch.backends.cpu, "get_cpu_capability"),
    "machine": (precision.platform, "machine"),
}
CAPABLE = {
    "onednn": True,
    "onednn_bf16": True,
    "avx512_bf16": True,
    "amx": False,
    "capability": "AVX512",
    "machine": "x86_64",
}


@pytest.fixture
def processor(monkeypatch):
    """Makes the processor one of Intel's that has everything but tiles, apart from what it is told."""

    def make(**changes) -> None:
        for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {**CAPABLE, **changes}.items():
            monkeypatch.setattr(*ASKED[name], lambda value=value: value)

    return make


@pytest.mark.parametrize(
    ("changes", "has"),
    [
        ({}, True),
        ({"capability": "AVX2"}, False),
        ({"avx512_bf16": False}, False),
        ({"avx512_bf16": False, "amx": True}, True),
        ({"avx512_bf16": False, "machine": "AMD64"}, False),
        ({"avx512_bf16": False, "machine": "aarch64"}, True),
        ({"onednn_bf16": False, "machine": "aarch64"}, False),
        ({"onednn_bf16": False}, False),
        ({"onednn": False}, False),
    ],
)
def test_a_processor_has_bfloat16_where_torch_onednn_and_its_instructions_say_so(processor, changes, has):
    processor(**changes)
    assert has_bfloat16("cpu") is has


def test_a_gpu_is_asked_for_instructions_of_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: asked.append(options) or len(asked) == 1)
    assert (has_bfloat16("cuda"), has_bfloat16("cuda:0")) == (True, False)
    assert asked == [{"including_emulation": False}] * 2


@pytest.mark.parametrize(
    ("told", "device", "refused"),
    [
        ("bfloat16", "cpu", "this processor has no instructions for bfloat16"),
        ("bfloat16", "cuda", "this GPU has no"),
        ("float16", "cpu", "float16 is for GPUs"),
        *((told, "cpu", "") for told in ("auto", "float32", "int8")),
        ("float16", "cuda:1", ""),
    ],
)
def test_a_precision_that_a_device_lacks_is_refused_with_the_alternative(monkeypatch, told, device, refused):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    if not refused:
        check_precision(told, device, "task.precision")
        return
    with pytest.raises(InputError, match=f"task.precision is {told}, but must be float32 here: {refused}"):
        check_precision(told, device, "task.precision")


def test_where_a_device_lacks_a_precision_float32_is_used(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)
    assert usable_precision("bfloat16", "cpu") == "bfloat16"
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    assert {usable_precision(name, "cpu") for name in ("float32", "bfloat16", "float16")} == {"float32"}


def test_a_precision_is_a_type_of_torch_where_the_device_is_fast_in_it(monkeypatch):
    assert (dtype_of("float32", "cpu"), dtype_of("float16", "cuda")) == (torch.float32, torch.float16)
    with pytest.raises(InputError, match="precision is float8, but must be one of float32, bfloat16, float16"):
        dtype_of("float8", "cpu")
    with pytest.raises(InputError, match="served is float16"):
        dtype_of("float16", "cpu", "served")
    for has in (False, True):
        monkeypatch.setattr(precision, "has_bfloat16", lambda device, has=has: has)
        assert is_fast("bfloat16", "cpu") is has


@pytest.mark.parametrize(
    ("device", "has", "half"),
    [("cpu", True, "bfloat16"), ("cpu", False, None), ("cuda:1", True, "bfloat16"), ("cuda", False, "float16")],
)
def test_half_precision_is_bfloat16_where_a_device_has_it_and_float16_on_older_gpus(monkeypatch, device, has, half):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: has)
    assert half_precision(device) == half


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.layer.weight
        self.register_buffer("mean", torch.ones(4))
        self.register_buffer("steps", torch.arange(4))
        self.register_buffer("frequencies", torch.ones(4) / 3, persistent=False)


def test_weights_and_stored_buffers_are_converted_and_frequencies_and_numbers_are_not():
    model = Model()
    assert convert(model, torch.bfloat16) is model
    converted = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    assert converted.pop("steps") == torch.int64
    assert set(converted.values()) == {torch.bfloat16}
    assert model.frequencies.dtype == torch.float32
    assert model.tied.weight is model.layer.weight
    assert model.layer(torch.ones(1, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
