"""bfloat16 is taken where a device has instructions for it, and refused in one sentence elsewhere."""

from __future__ import annotations

import pytest
import torch

from pliant import precision
from pliant.errors import InputError
from pliant.models.packed import PackedLinear, can_pack
from pliant.precision import check_precision, dtype_of, half_precision, has_bfloat16, is_fast
from tests.fixtures.processor import NEEDS_BFLOAT16

REFUSED = "task.precision is bfloat16, but must be float32 here: this processor has no instructions for bfloat16"


@pytest.fixture
def capable(monkeypatch):
    """A processor of Intel's that has everything, with no variable that limits it."""
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(precision.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert has_bfloat16("cpu")


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
@pytest.mark.parametrize("limit", ["AVX2", "avx2", "AVX512_CORE", "AVX512_CORE_VNNI"])
def test_a_limit_of_onednn_below_bfloat16_counts(capable, monkeypatch, name, limit):
    monkeypatch.setenv(name, limit)
    assert not has_bfloat16("cpu")


@pytest.mark.parametrize("limit", ["ALL", "AVX512_CORE_BF16", "AVX512_CORE_AMX"])
def test_a_limit_of_onednn_with_bfloat16_changes_nothing(capable, monkeypatch, limit):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_bfloat16("cpu")


def test_what_torch_may_use_counts(capable, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not has_bfloat16("cpu")


def test_avx512_alone_is_not_enough(capable, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert not has_bfloat16("cpu")


def test_on_another_architecture_onednn_decides(capable, monkeypatch):
    monkeypatch.setattr(precision.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert has_bfloat16("cpu")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert not has_bfloat16("cpu")


def test_bfloat16_is_refused_with_the_alternative_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match=REFUSED):
        check_precision("bfloat16", "cpu", "task.precision")
    with pytest.raises(InputError, match="precision is bfloat16, but must be float32 here: this GPU has no"):
        check_precision("bfloat16", "cuda")


@pytest.mark.parametrize("told", ["auto", "float32", "float16"])
def test_everything_else_is_left_to_its_own_checks(monkeypatch, told):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    check_precision(told, "cpu")


def test_bfloat16_is_accepted_where_it_is_there(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)
    check_precision("bfloat16", "cpu")


@NEEDS_BFLOAT16
@pytest.mark.skipif(not can_pack(), reason="this build of torch does not pack weights")
def test_where_bfloat16_is_there_weights_can_be_packed():
    layer = PackedLinear(torch.nn.Linear(64, 64).bfloat16())
    assert layer(torch.ones(64, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_gpu_is_asked_for_instructions_of_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: asked.append(options) or len(asked) == 1)
    assert (has_bfloat16("cuda"), has_bfloat16("cuda:0")) == (True, False)
    assert asked == [{"including_emulation": False}] * 2


@pytest.mark.parametrize("lacking", ["onednn", "the question", "the answer"])
def test_without_onednn_there_is_no_bfloat16(capable, monkeypatch, lacking):
    if lacking == "onednn":
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    else:
        answer = None if lacking == "the question" else lambda: False
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", answer)
    assert has_bfloat16("cpu") is False


def test_instructions_for_tiles_are_enough(capable, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert has_bfloat16("cpu") is True
    monkeypatch.setattr(precision.platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert has_bfloat16("cpu") is False


def test_a_precision_is_a_type_of_torch_where_the_device_is_fast_in_it(monkeypatch):
    assert (dtype_of("float32", "cpu"), dtype_of("float16", "cuda")) == (torch.float32, torch.float16)
    with pytest.raises(InputError, match="precision is float8, but must be one of float32, bfloat16, float16"):
        dtype_of("float8", "cpu")
    with pytest.raises(InputError, match="served is float16, but must be float32 or bfloat16 on a CPU"):
        dtype_of("float16", "cpu", "served")
    for has in (False, True):
        monkeypatch.setattr(precision, "has_bfloat16", lambda device, has=has: has)
        assert is_fast("bfloat16", "cpu") is has


@pytest.mark.parametrize(
    ("device", "has", "half"),
    [
        ("cpu", True, "bfloat16"),
        ("cpu", False, None),
        ("cuda:1", True, "bfloat16"),
        ("cuda", False, "float16"),
    ],
)
def test_half_precision_is_bfloat16_where_a_device_has_it_and_float16_on_older_gpus(monkeypatch, device, has, half):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: has)
    assert half_precision(device) == half
