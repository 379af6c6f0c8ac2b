"""bfloat16 is taken where a device has instructions for it, and refused in one sentence elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pliant import precision
from pliant.errors import InputError
from pliant.precision import check_precision, convert, dtype_of, half_precision, has_bfloat16, is_fast, usable_precision

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


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
@pytest.mark.parametrize(
    ("limit", "has"),
    [
        *((limit, False) for limit in ("AVX2", "avx2", "AVX512_CORE", "AVX512_CORE_VNNI")),
        *((limit, True) for limit in ("ALL", "AVX512_CORE_BF16", "AVX512_CORE_AMX")),
    ],
)
def test_a_limit_of_onednn_below_bfloat16_counts(processor, monkeypatch, name, limit, has):
    processor()
    monkeypatch.setenv(name, limit)
    assert has_bfloat16("cpu") is has


def test_a_build_of_torch_that_cannot_be_asked_has_none(processor, monkeypatch):
    processor()
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    assert has_bfloat16("cpu") is False


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
