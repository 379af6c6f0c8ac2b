"""Merging in two launches, without a GPU: equal to torch when interpreted, compiled for two GPUs, left where it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pliant.fallbacks import Collector
from pliant.tokens import model as model_file
from tests.fixtures.places import ROOT

triton = pytest.importorskip("triton", reason="torch was installed without Triton")

INTERPRETED = """
import torch
from pliant.tokens.model import _merge_in_torch
from pliant.tokens.triton_merge import merge_in_two_launches

SHAPES = [  # images, tokens, heads, width of a head, merged, with sizes
    (2, 197, 3, 64, 37, True), (1, 197, 6, 64, 98, False), (2, 50, 2, 24, 20, True), (1, 17, 3, 16, 8, True),
    (1, 4, 1, 8, 1, False), (1, 300, 1, 32, 149, True),
]
for seed, (batch, tokens, heads, width, merged, sized) in enumerate(SHAPES):
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(seed)
        key = torch.randn(batch, tokens, 3, heads, width).to(dtype)[:, :, 1].transpose(1, 2)
        x, attended = (torch.randn(batch, tokens, heads * width).to(dtype) for _ in range(2))
        if dtype == torch.bfloat16:  # Triton's interpreter cuts bits off where a GPU rounds: so sums are exact
            x, attended = x.mul(8).round().div(8), torch.zeros_like(x)
        size = torch.randint(1, 600, (batch, tokens, 1)).float() if sized else None
        own, expected = (f(x, attended, size, key, merged) for f in (merge_in_two_launches, _merge_in_torch))
        kept = (tokens + 1) // 2 - merged  # even tokens that stay, which are copied
        assert torch.equal(own[0][:, :kept], expected[0][:, :kept]) or dtype == torch.float32
        assert torch.equal(own[1], expected[1]), (seed, dtype)
        for result, right in zip(own, expected):
            error = (result.float() - right.float()).abs()
            assert (error <= (1e-5 if dtype == torch.float32 else 2**-7 * right.float().abs() + 1e-6)).all(), (seed, dtype)
print("equal")
"""

TARGETS = [80, 90]
TYPES = {"size": "*fp32", "new_size": "*fp32", "dest": "*i32"}
TOKENS = ("x", "attended", "out", "log_size", "key")  # in the type of the tokens
SHARED = {80: 166_912, 90: 232_448}  # bytes that a block may have


def test_the_kernels_equal_torch_in_tritons_interpreter():
    """In a process of its own, as Triton reads the variable when it is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", INTERPRETED]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.stdout == "equal\n", run.stderr


@pytest.fixture(scope="module")
def cuobjdump():
    [*tools] = Path(triton.__file__).parent.glob("backends/nvidia/bin/cuobjdump*")
    if not tools:
        pytest.skip("this build of Triton has no cuobjdump, which reads what a kernel needs")
    return tools[0]


def needs(kernel, constants, dtype, capability, cuobjdump, folder) -> tuple[int, int]:
    """Compile for a GPU that is not there; return bytes of shared memory a block, and of spills a thread."""
    from triton.backends.compiler import GPUTarget

    constants = dict(constants)
    options = {"num_warps": constants.pop("num_warps")}
    kinds = TYPES | dict.fromkeys(TOKENS, f"*{dtype}")
    signature = {name: "constexpr" if name in constants else kinds.get(name, "i32") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    file = folder / "kernel.cubin"
    file.write_bytes(compiled.asm["cubin"])
    listed = subprocess.run([cuobjdump, "-res-usage", file], capture_output=True, text=True, timeout=60)
    usage = re.search(r"STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", listed.stdout + listed.stderr)
    assert usage, listed.stdout + listed.stderr
    return compiled.metadata.shared, int(usage[1]) + int(usage[2])


@pytest.mark.parametrize("capability", TARGETS)
def test_the_kernels_compile_for_gpus_and_spill_nothing(capability, cuobjdump, tmp_path, monkeypatch):
    from pliant.tokens.triton_merge import MOST, average_constants, average_kernel, match_constants, match_kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = [(match_kernel, match_constants(tokens, 12, 64), "bf16") for tokens in (197, MOST)]
    kernels += [(average_kernel, average_constants(torch.bfloat16, True), "bf16")]
    kernels += [(average_kernel, average_constants(torch.float32, False), "fp32")]
    for kernel, constants, dtype in kernels:
        shared, spilled = needs(kernel, constants, dtype, capability, cuobjdump, tmp_path)
        assert (shared <= SHARED[capability], spilled) == (True, 0), (kernel.__name__, constants)


@pytest.fixture
def collector():
    model_file._compared.cache_clear()
    model_file._triton.cache_clear()
    yield Collector()
    model_file._compared.cache_clear()
    model_file._triton.cache_clear()


def chosen(tokens=16):
    return model_file._compared(torch.device("cpu"), torch.float32, 2, tokens, 8)


def test_kernels_that_fail_or_differ_are_left_and_noted_once(collector, monkeypatch):
    def broken(*_):
        raise RuntimeError("no PTX for this device\nand more")

    def wrong(*given):
        x, size, log = model_file._merge_in_torch(*given)
        return x + 1, size, log

    for kernels, reason in [(broken, "no PTX for this device"), (wrong, "Tensor-likes are not close")]:
        model_file._compared.cache_clear()
        monkeypatch.setattr(model_file, "_triton", lambda kernels=kernels: kernels)
        assert chosen() is chosen() is model_file._merge_in_torch
        [fallback] = collector.take()
        assert fallback.kind == "package" and "up to 16 tokens" in fallback.reason and reason in fallback.reason
    monkeypatch.undo()


def test_kernels_that_agree_are_used(collector, monkeypatch):
    def kernels(*given):
        return model_file._merge_in_torch(*given)

    monkeypatch.setattr(model_file, "_triton", lambda: kernels)
    assert chosen() is kernels and not collector.take()
    monkeypatch.undo()


def test_without_triton_torch_merges_which_is_noted_once_for_all_shapes(collector, monkeypatch):
    monkeypatch.setitem(sys.modules, "pliant.tokens.triton_merge", None)
    assert chosen(16) is chosen(32) is model_file._merge_in_torch
    assert [fallback.kind for fallback in collector.take()] == ["package"]


def test_on_a_cpu_and_where_gradients_flow_torch_merges():
    key_BHNE = torch.zeros(1, 2, 16, 8)
    assert model_file._merging(torch.zeros(1, 16, 16), key_BHNE) is model_file._merge_in_torch


def test_more_tokens_than_the_first_kernel_pairs_are_refused():
    from pliant.tokens.triton_merge import MOST, merge_in_two_launches

    x_BND = torch.zeros(1, MOST + 1, 16)
    with pytest.raises(ValueError, match="at most 512"):
        merge_in_two_launches(x_BND, x_BND, None, torch.zeros(1, 2, MOST + 1, 8), 4)
