"""Runs a launch of tokenized texts on a device, in the runtime of a given shape.

Native code of static shapes does not check its arguments, so this module does before every call. It neither tokenizes
nor decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from pliant import fallbacks
from pliant.bins.artifact import ENGINES, PLACEMENTS, Encoder, Shape, check_device
from pliant.bins.runtimes.cache import check_versions, verify
from pliant.bins.runtimes.compile import check_engine
from pliant.bins.runtimes.graphs import Call, EagerEngine, GraphsEngine, Note, called_within
from pliant.bins.runtimes.model import describe, load_model
from pliant.bins.runtimes.padding import Payload, check, padded, size_text
from pliant.device import threads
from pliant.errors import InputError
from pliant.models.execution import CudaCapture, Pieces
from pliant.precision import FLOAT32, convert, dtype_of

__all__ = ["BinsRuntime", "Payload", "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one launch: an output per text, and the seconds it took, including padding and copies."""

    outputs: list[NDArray[np.float32]]  # [K] each: logits, or the embedding; unpooled [N, H], one a token
    seconds: float


class Engine(Protocol):
    """What runs shapes: ONNX Runtime, CUDA graphs or plain torch."""

    def open(self, shape: Shape) -> Call:
        """Load the runtime of a shape: it takes arrays of exactly that shape (a dynamic one: up to it), returns [B, K]."""

    def open_tokens(self, shape: Shape) -> Call:
        """Return the function that gives the embeddings [B, N, H] of all tokens for a shape that is loaded."""


Outputs = Callable[[Shape, Call, Sequence[Payload]], list[NDArray[np.float32]]]
"""Runs texts in the runtime of a shape."""


class BinsRuntime:
    """An encoder's runtimes on one device, by their index in `shapes`. Threads may call `run` at the same time.

    `folder` and `files` (name -> SHA-256): what `compile_encoder` wrote, for engines that have files; all are verified
    before any is loaded. `placement`: "shared" loads all shapes, "single" those of one length at a time (`load`).
    `precision`: of the weights, which are converted once; outputs are float32.

    Raises `DigestError` or `ArtifactError` for files other than the registered ones, `DeviceError` for files made by
    other versions or for another processor, `InputError` for shapes beyond the encoder, and for a precision that the
    device or the engine lacks.
    """

    def __init__(
        self,
        encoder: Encoder,
        shapes: Sequence[Shape],
        engine: str = "onnx",
        folder: Path | None = None,
        files: Mapping[str, str] | None = None,
        device: str = "cpu",
        threads: int = 1,
        placement: str = "shared",
        precision: str = FLOAT32,
    ) -> None:
        for name, value, known in (("engine", engine, ENGINES), ("placement", placement, PLACEMENTS)):
            if value not in known:
                raise InputError(name, value, f"one of {known}")
        model = describe(encoder)
        longest = min(encoder.max_length, model.positions or encoder.max_length)
        for shape in shapes:
            if shape.length > longest:
                raise InputError("shape", size_text(shape), f"at most {longest} tokens long for {encoder.name}")
        self.shapes, self._pad, self._typed, self._embeds = tuple(shapes), model.pad, model.typed, model.embeds
        self._name, self._notes, self._pieces = encoder.name, dict[str, None](), Pieces(torch.device(device))
        check_engine(engine, precision)
        dtype = dtype_of(precision, device)
        self._engine = _engine(engine, encoder, folder, files or {}, torch.device(device), threads, dtype, self._note)
        self._shared = placement == "shared"
        self._calls = self._opened(range(len(self.shapes))) if self._shared else {}

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Return what runs otherwise than planned, as that has failed: one sentence each."""
        return (*self._notes, *self._pieces.fallbacks)

    def load(self, setting: int) -> None:
        """Load all batch sizes of this shape's length, in place of another length.

        Does nothing where all shapes are loaded. Raises `InputError` for an unknown setting.
        """
        wanted = self._known(setting)
        if not self._shared:
            kind = wanted.length, wanted.dynamic
            same = [n for n, shape in enumerate(self.shapes) if (shape.length, shape.dynamic) == kind]
            # The former ones live until then: the graphs' memory pool must not become empty.
            self._calls = self._opened(same)

    def run(self, setting: int, payloads: Sequence[Payload], unpooled: Collection[int] = ()) -> Run:
        """Return the texts' outputs. Raises `InputError` for texts that do not fit, or a shape that is not loaded.

        `unpooled`: the texts, by their index, whose tokens get an embedding each; only an embedding encoder has these. Texts
        for which the device lacks memory run in smaller batches in the dynamic runtime, where that is loaded.
        """
        start = time.perf_counter()
        shape, call = self._known(setting), self._calls.get(setting)
        if call is None:
            raise InputError("setting", setting, f"one that is loaded, {sorted(self._calls)}")
        check(shape, payloads)
        if not unpooled:
            return Run(self._in_pieces(setting, shape, payloads, self._outputs), time.perf_counter() - start)
        if not self._embeds:
            raise InputError("unpooled", list(unpooled), f"empty, as {self._name} gives no embeddings")
        outputs: dict[int, NDArray[np.float32]] = {}
        pooled = [number for number in range(len(payloads)) if number not in unpooled]
        for numbers, run in ((pooled, self._outputs), (sorted(unpooled), self._token_outputs)):
            if numbers:
                texts = [payloads[number] for number in numbers]
                outputs |= zip(numbers, self._in_pieces(setting, shape, texts, run), strict=True)
        return Run([outputs[number] for number in range(len(payloads))], time.perf_counter() - start)

    def _in_pieces(
        self, setting: int, shape: Shape, payloads: Sequence[Payload], run: Outputs
    ) -> list[NDArray[np.float32]]:
        rest = self._dynamic()
        return self._pieces.run(
            setting,
            f"{self._name}: {size_text(shape)}",
            payloads,
            lambda texts: run(shape, self._calls[setting], texts),
            None if rest is None else lambda texts: run(*rest, texts),
        )

    def _outputs(self, shape: Shape, call: Call, payloads: Sequence[Payload]) -> list[NDArray[np.float32]]:
        return list(call(padded(shape, payloads, self._pad, self._typed))[: len(payloads)])

    def _token_outputs(self, shape: Shape, call: Call, payloads: Sequence[Payload]) -> list[NDArray[np.float32]]:
        del call
        token_BNH = self._engine.open_tokens(shape)(padded(shape, payloads, self._pad, self._typed))
        return [token_NH[: len(ids)].copy() for token_NH, (ids, _) in zip(token_BNH, payloads, strict=False)]

    def _dynamic(self) -> tuple[Shape, Call] | None:
        """Return the dynamic runtime, where there is one and it is loaded."""
        loaded = ((self.shapes[setting], call) for setting, call in self._calls.items())
        return next(((shape, call) for shape, call in loaded if shape.dynamic), None)

    def _note(self, kind: str, text: str) -> None:
        reason = f"{self._name}: {text}"
        if reason not in self._notes:  # under the placement "single" a shape is loaded again and again
            self._notes[reason] = None
            fallbacks.note(kind, reason)

    def _known(self, setting: int) -> Shape:
        if not 0 <= setting < len(self.shapes):
            raise InputError("setting", setting, f"0 to {len(self.shapes) - 1}")
        return self.shapes[setting]

    def _opened(self, settings: Sequence[int]) -> dict[int, Call]:
        """Load these shapes, the largest first, as captured graphs share memory."""
        size = {n: self.shapes[n].length * self.shapes[n].batch for n in settings}
        return {n: self._engine.open(self.shapes[n]) for n in sorted(settings, key=lambda n: -size[n])}


class _Threaded:
    """An engine of torch on a CPU that computes with this many threads; after each call there are as many as before."""

    def __init__(self, engine: Engine, count: int) -> None:
        self._engine, self._threads = engine, partial(threads, count)

    def open(self, shape: Shape) -> Call:
        return called_within(self._engine.open(shape), self._threads)

    def open_tokens(self, shape: Shape) -> Call:
        return called_within(self._engine.open_tokens(shape), self._threads)


def _engine(
    name: str,
    encoder: Encoder,
    folder: Path | None,
    files: Mapping[str, str],
    device: torch.device,
    threads: int,
    dtype: torch.dtype,
    note: Note,
) -> Engine:
    check_device(name, str(device))
    if name == "onnx":
        return _onnx(_verified(name, folder, files), threads)
    model = convert(load_model(encoder), dtype).to(device)
    if name == "graphs":
        return GraphsEngine(model, model.inputs, device, CudaCapture(device), note)
    eager = EagerEngine(model, device)
    return _Threaded(eager, threads) if device.type == "cpu" else eager


def _onnx(folder: Path, threads: int) -> Engine:
    try:
        from pliant.bins.runtimes.onnx_session import OnnxEngine
    except ModuleNotFoundError as error:
        raise InputError("engine", "onnx", f"graphs or eager: {error.name} is not installed here") from error
    return OnnxEngine(folder, threads)


def _verified(engine: str, folder: Path | None, files: Mapping[str, str]) -> Path:
    if folder is None:
        raise InputError("folder", None, f"where compiled files are, for engine {engine}")
    verify(folder, files)
    return check_versions(folder, files, engine)
