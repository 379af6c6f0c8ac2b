"""What a runtime of bins does where something fails: the other shapes run as planned. And in which precision it computes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.cache import VERSIONS, store
from pliant.bins.runtimes.compile import compile_shapes, package
from pliant.bins.runtimes.graphs import EagerEngine
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from pliant.fallbacks import Collector, Fallback
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(8, 4), Shape(40, 1), Shape(40, 2), Shape(40, 8, dynamic=True))


def test_a_package_that_cannot_be_loaded_leaves_the_others_and_its_shape_to_plain_torch(monkeypatch, tmp_path):
    noted = Collector()
    shapes = (*SHAPES[:2], SHAPES[-1])
    files = store(tmp_path, "aot", lambda target: [(target / package(shape)).touch() for shape in shapes])

    def load(path, **_):
        if path.endswith("8x4.pt2"):
            raise RuntimeError("undefined symbol")
        return SimpleNamespace(get_constant_fqns=list, load_constants=lambda *_, **__: None)

    monkeypatch.setattr(torch._inductor, "aoti_load_package", load)
    runtime = BinsRuntime(tiny_encoder(), shapes, "aot", tmp_path, files)
    reason = "tiny: 4 x 8 runs in plain torch, as its package cannot be loaded (undefined symbol)"
    assert (runtime.fallbacks, noted.take()) == ((reason,), (Fallback("package", reason),))
    texts = [random_payload(np.random.default_rng(0), 5)]
    plain = BinsRuntime(tiny_encoder(), shapes, "eager").run(1, texts).outputs
    np.testing.assert_allclose(runtime.run(1, texts).outputs, plain, atol=1e-5)


@pytest.mark.parametrize("setting", [1, len(SHAPES) - 1])
def test_texts_that_the_device_has_no_memory_for_run_in_smaller_batches_in_the_dynamic_runtime(monkeypatch, setting):
    texts = [random_payload(np.random.default_rng(seed), 3 + seed) for seed in range(4)]
    expected = BinsRuntime(tiny_encoder(), SHAPES, "eager").run(setting, texts).outputs
    runtime = BinsRuntime(tiny_encoder(), SHAPES, "eager")
    call, sizes = EagerEngine._call, []

    def short_of_memory(engine, batch):
        sizes.append(batch["input_ids"].shape)
        if len(batch["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return call(engine, batch)

    runtime._calls = {
        number: lambda batch: short_of_memory(runtime._engine._engine, batch) for number in runtime._calls
    }
    for _ in range(2):
        np.testing.assert_allclose(runtime.run(setting, texts).outputs, expected, atol=1e-5)
    assert [rows for rows, _ in sizes] == [4, 2, 2, 2, 2], "the larger batch is not tried again"
    assert [length for _, length in sizes[1:]] == [4, 6, 4, 6], "as long as the texts need"
    (text,) = runtime.fallbacks
    assert text.endswith("runs at most 2 at a time: the device lacked memory for 4")


@pytest.mark.parametrize("head", ["classification", "embedding"])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_may_be_converted_to_half_precision_and_outputs_stay_float32(monkeypatch, family, head):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    encoder = tiny_encoder(family, head)
    half, plain = (BinsRuntime(encoder, SHAPES, "eager", precision=name) for name in ("bfloat16", "float32"))
    assert {weight.dtype for weight in half._engine._engine._model.parameters()} == {torch.bfloat16}
    texts = [random_payload(np.random.default_rng(seed), 5 + seed) for seed in range(3)]
    for low, exact in zip(half.run(4, texts).outputs, plain.run(4, texts).outputs, strict=True):
        assert low.dtype == np.float32
        np.testing.assert_allclose(low, exact, atol=0.05)


def test_a_precision_that_the_engine_or_the_device_lacks_is_refused():
    with pytest.raises(InputError, match="precision is bfloat16, but must be float32 with the engine onnx"):
        BinsRuntime(tiny_encoder(), SHAPES, "onnx", precision="bfloat16")
    with pytest.raises(InputError, match="precision is float16, but must be float32 here: float16 is for GPUs"):
        BinsRuntime(tiny_encoder(), SHAPES, "eager", precision="float16")


def test_a_shape_that_cannot_be_compiled_is_left_to_plain_torch_and_the_others_are_packages(monkeypatch, tmp_path):
    noted, shapes, loaded = Collector(), SHAPES[:2], []

    def compile_and_package(program, package_path, inductor_configs) -> None:
        Path(package_path).write_text("half a package")
        if package_path.endswith("8x4.pt2"):
            raise RuntimeError("no kernel for this shape")

    def load(path, **_):
        loaded.append(Path(path).name)
        return SimpleNamespace(get_constant_fqns=list, load_constants=lambda *_, **__: None)

    monkeypatch.setattr(torch.export, "export", lambda *_, **__: None)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_and_package)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", load)
    files = compile_shapes(tiny_encoder(), shapes, "aot", tmp_path)
    (fallback,) = noted.take()
    reason = "4 x 8 could not be compiled for aot: RuntimeError: no kernel for this shape"
    assert fallback == Fallback("package", reason)
    assert {Path(name).name for name in files} == {"8x1.pt2", VERSIONS}
    runtime = BinsRuntime(tiny_encoder(), shapes, "aot", tmp_path, files)
    assert runtime.fallbacks == ("tiny: 4 x 8 runs in plain torch, as it could not be compiled",)
    assert loaded == ["8x1.pt2"]
    texts = [random_payload(np.random.default_rng(0), 5)]
    assert runtime.run(1, texts).outputs[0].shape == (3,)
