"""Compiles an encoder for an engine into the cache: one ONNX file for all shapes.

This takes seconds; loading the result takes no compiling. Engines that compile nothing ahead have no files.
"""

from __future__ import annotations

import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pliant.bins.artifact import ENGINES, Encoder, Shape, check_device
from pliant.bins.runtimes.cache import store
from pliant.bins.runtimes.graphs import EagerEngine
from pliant.bins.runtimes.model import HeadedEncoder, WithTokens, load_model
from pliant.bins.runtimes.padding import OUTPUT, TOKENS, padded
from pliant.errors import ArtifactError, InputError
from pliant.precision import FLOAT32, convert, dtype_of
from pliant.progress import Progress, share, silent

EXPORTS = ((23, "sdpa"), (20, "eager"))
"""Pairs of ONNX opset and transformers' attention; the first that gives correct outputs is used.

Opset 23 has an operator for attention: at 512 tokens it takes 4% less than its parts. It also has one for rotary
embeddings, which ONNX Runtime 1.31 refuses as ModernBERT uses it. A model with rotary embeddings therefore starts with
the second pair, which halves the time to compile it.
"""
ROTARY = "rotary_emb"  # the name of that part in transformers
TOLERANCE = 1e-3  # share of the largest output
EXAMPLE = (2, 16)  # texts x tokens with which a model of free sizes is traced: neither size is a special case


def compile_encoder(
    encoder: Encoder,
    engine: str,
    folder: Path,
    device: str = "cpu",
    progress: Progress = silent,
    precision: str = FLOAT32,
) -> dict[str, str]:
    """Compile into `folder` what the engine needs for all shapes, all of it or nothing.

    Returns file -> SHA-256, relative to `folder`; empty for engines without files. Raises `InputError` for an engine
    that cannot compile for the device, `ArtifactError` where compiling fails or the files cannot be written (a full
    disk).
    """
    if engine not in ENGINES:
        raise InputError("engine", engine, f"one of {ENGINES}")
    check_device(engine, device)
    if engine != "onnx":
        return {}
    check_engine(engine, precision)
    model = convert(load_model(encoder), dtype_of(precision, device)).to(device)
    return store(folder, engine, lambda target: _onnx(encoder, model, target, progress))


def check_engine(engine: str, precision: str) -> None:
    """Raise `InputError` for an engine that does not compute in this precision."""
    if engine == "onnx" and precision != FLOAT32:
        raise InputError("precision", precision, "float32 with the engine onnx")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _onnx(encoder: Encoder, model: HeadedEncoder, target: Path, progress: Progress) -> None:
    """Write one model of free sizes; its static shapes are fixed when it is loaded (onnx_session.py)."""
    defect, exports = "", EXPORTS[1:] if any(name.endswith(ROTARY) for name, _ in model.named_modules()) else EXPORTS
    for number, (opset, attention) in enumerate(exports):
        part = share(progress, 100 * number // len(exports), 100 * (number + 1) // len(exports))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter addresses those who write models
            defect = _attempt(model, opset, attention, target, part)
        if not defect:
            progress(100, 100)
            return
    raise ArtifactError(f"{encoder.name} could not be compiled for onnx: {defect}")


def _attempt(model: HeadedEncoder, opset: int, attention: str, target: Path, progress: Progress) -> str:
    """Export with this opset and attention; return what is wrong with the result, "" if nothing is."""
    from pliant.bins.runtimes.onnx_session import optimise

    transformer: Any = model.model
    with suppress(ValueError):  # a model that has one kind of attention keeps it
        transformer.set_attn_implementation(attention)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=target.name) as exported:
            _export(model, opset, Path(exported) / "exported.onnx")
            progress(1, 3)
            optimise(Path(exported) / "exported.onnx", target)
            progress(2, 3)
        return _difference(model, target)
    except OSError:  # the disk is at fault, not the export
        raise
    except Exception as error:  # the exporter and ONNX Runtime raise many kinds
        return _reason(error)


def _export(model: HeadedEncoder, opset: int, path: Path) -> None:
    program = torch.onnx.export(
        WithTokens(model) if model.embeds else model,
        _example(model, *_free(model)),
        dynamo=True,
        dynamic_shapes=({0: "batch", 1: "length"},) * len(model.inputs),
        opset_version=opset,
        input_names=list(model.inputs),
        output_names=[OUTPUT, TOKENS] if model.embeds else [OUTPUT],
        verbose=False,
    )
    assert program is not None, "dynamo gives a program"
    program.save(str(path), external_data=True)


def _difference(model: HeadedEncoder, target: Path) -> str:
    """Return how outputs differ from the plain model's on a padded batch; "" if they do not."""
    from pliant.bins.runtimes.onnx_session import OnnxEngine

    shape = Shape(_free(model)[1], 3)
    texts = [np.arange(1, 1 + length, dtype=np.int32) for length in (shape.length, shape.length // 2 + 1, 1)]
    batch = padded(shape, [(ids, np.zeros(len(ids), np.int8)) for ids in texts], model.pad, model.typed)
    eager, onnx = EagerEngine(model, torch.device("cpu")), OnnxEngine(target, 1)
    call = onnx.open(shape)  # kept: its session closes with it
    pairs = [(call(batch), eager.open(shape)(batch))]
    if model.embeds:
        valid_BN = batch["attention_mask"].astype(bool)
        pairs.append((onnx.open_tokens(shape)(batch)[valid_BN], eager.open_tokens(shape)(batch)[valid_BN]))
    off = max(float(np.abs(output - expected).max() / np.abs(expected).max()) for output, expected in pairs)
    return "" if off <= TOLERANCE else f"outputs differ from the model's by {off:.1%}"


def _free(model: HeadedEncoder) -> tuple[int, int]:
    batch, length = EXAMPLE
    return batch, min(length, model.positions or length)


def _example(model: HeadedEncoder, batch: int, length: int) -> tuple[Tensor, ...]:
    device = next(model.parameters()).device
    return tuple(torch.ones(batch, length, dtype=torch.long, device=device) for _ in model.inputs)
