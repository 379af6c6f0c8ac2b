"""Runs a batch of mixed tasks on a device at one setting: a gamma, or the number of an operating point.

By default a GPU computes in bfloat16 (where it can) through captured CUDA graphs, and a CPU in float32 with packed
weights. Nothing is decided here. Prompts and heads of all tasks lie on the device, padded to one shape, so that a mixed
batch can gather them per sample.

Shape suffixes: B rows of a batch or its buffers, H and W pixels, C colours, T tasks (rows), L layers, G prompts, K classes,
D width.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from pliant.device import prepare_attention
from pliant.errors import BackboneError, InputError
from pliant.models.execution import BUCKETS, Capture, CudaCapture, Graphs, Pieces, can_pack
from pliant.precision import dtype_of, has_bfloat16
from pliant.tokens.artifact import Backbone, Task
from pliant.tokens.model import AdaptiveViT, create_vit, pack
from pliant.tokens.points import BOTH, CLASS, FIRST_POINT, MEAN, Dimensions, Point

CHUNK = 8  # images
ROWS = 64  # pictures that are read at a time
AHEAD = 2  # batches: one that is loaded, and the next one


@dataclass(frozen=True, slots=True)
class Payload:
    """One image to classify: uint8 [H, W, 3], already of the backbone's image size."""

    task: str
    image: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one launch: class probabilities per payload, and the seconds it took on the device."""

    probabilities: tuple[NDArray[np.float32], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Execution:
    """How a runtime computes. The defaults were measured to be fastest without changing any label.

    `precision`: of weights and tokens; None means bfloat16 on a GPU that has it, float32 elsewhere. `packed`: whether
    weights are stored in oneDNN's layout (CPU). `buckets`: ascending batch sizes for which CUDA graphs are captured,
    empty for none; a larger batch runs without a graph. `capture`: how graphs are captured; None means CUDA's own way
    on a GPU and no graphs elsewhere. `unmasked`: gammas at which a merged token counts once in attention, however many
    it stands for.
    """

    precision: str | None = None
    packed: bool = True
    buckets: tuple[int, ...] = BUCKETS
    capture: Capture | None = None
    unmasked: Set[int] = field(default_factory=frozenset)


class TokensRuntime:
    """A backbone on a device, with the prompts and heads of every task beside it.

    It serves the gammas that all its tasks were trained for (of these `gammas` alone, where they are given) and the
    operating `points`, by number. Raises `BackboneError` for a task made for another
    backbone, and `InputError` for bfloat16 on a device without instructions for it.
    """

    def __init__(
        self,
        backbone: Backbone,
        digest: str,
        tasks: Sequence[Task],
        device: str = "cpu",
        execution: Execution = Execution(),
        points: Mapping[int, Point] | None = None,
        gammas: Collection[int] | None = None,
    ) -> None:
        self._device, self._execution, self.points = torch.device(device), execution, dict(points or {})
        if self._device.type == "cuda":
            prepare_attention()  # here too, so that a profile measures what is served
        half = self._device.type == "cuda" and has_bfloat16(self._device)
        precision = execution.precision or ("bfloat16" if half else "float32")
        self._dtype = dtype_of(precision, self._device)
        self._digest = digest
        self._model = load_model(backbone).to(self._device, self._dtype)
        self._image_size = backbone.image_size
        self._normalise = normaliser(backbone, self._device)
        self._graphs: Graphs | None = None
        self._staging: Staging | None = None
        capture = execution.capture or (CudaCapture(self._device) if self._device.type == "cuda" else None)
        if capture is not None and execution.buckets:
            self._staging = Staging(execution.buckets[-1], self._image_size, self._device)
            buffers = self._staging.pixel_BHWC, self._staging.task_B
            self._graphs = Graphs(self._classify, capture, *buffers, execution.buckets)
        if execution.packed and self._device.type == "cpu" and self._graphs is None and can_pack():
            pack(self._model)
        self._pieces = Pieces(self._device)
        self._tasks: dict[str, Task] = {}
        self._row: dict[str, int] = {}
        for point in self.points.values():
            point.check(self._model.dimensions)
        self._heads = self.points.keys() | {0, *gammas} if gammas is not None else None
        self._resident = ResidentAdapters(self._device, self._dtype, spare=self._graphs is not None)
        self.update(tasks)

    def update(self, tasks: Sequence[Task]) -> None:
        """Add tasks, or replace those of the same name, from the next run on. All of them are taken, or none.

        Graphs that read a replaced tensor are captured again before this returns. Raises `InputError` for a task that
        lacks a setting that is served, and `BackboneError` for one made for another backbone.
        """
        served = self._resident.at.keys() | self.points.keys()
        for task in tasks:
            if task.backbone != self._digest:
                theirs, own = task.backbone[:12], self._digest[:12]
                raise BackboneError(f"task {task.name} was made for backbone {theirs}, but the one loaded is {own}")
            if lacking := sorted(number for number in served if not task.serves(number)):
                limit = f"trained for all of {sorted(served)}"
                raise InputError(f"task {task.name}", f"without gamma {lacking}", limit)
            if other := [number for number, point in self.points.items() if task.points.get(number) != point]:
                raise InputError(
                    f"task {task.name}", f"with other operating points {other}", "of those that are served"
                )
        tasks_by_name = self._tasks | {task.name: task for task in tasks}
        known = list(tasks_by_name.values())
        shared = {n for task in known for n in task.heads if all(other.serves(n) for other in known)}
        allowed = {n for n in shared if n < FIRST_POINT or n in self.points} if self._heads is None else self._heads
        replaced = self._resident.fill(known, shared & allowed)
        self._tasks, self._row = tasks_by_name, {name: row for row, name in enumerate(tasks_by_name)}
        if replaced and self._graphs is not None:
            with torch.inference_mode():
                self._graphs.renew()

    def warm(self, gammas: Sequence[int]) -> None:
        """Capture the graphs of all buckets at these gammas, the largest first: the others fit into its memory.

        Does nothing where there are no graphs. A graph that is not captured here is captured by the first run that
        needs it.
        """
        if self._graphs is not None:
            with torch.inference_mode():
                for size in sorted(self._execution.buckets, reverse=True):
                    for gamma in gammas:
                        self._graphs.run(gamma, size)

    def send(self, images: Sequence[NDArray[np.uint8]]) -> None:
        """Begin to copy the images of the next run to the device; another thread may call this during a run.

        Does nothing where images are not copied apart from computing.
        """
        if self._staging is not None and len(images) <= self._execution.buckets[-1]:
            self._staging.send(images)

    def run(self, gamma: int, payloads: Sequence[Payload]) -> Run:
        """Classify a batch, mixed tasks or not, at one setting, in pieces where the device lacks memory for the whole.

        Raises `InputError` for an unknown gamma or task, and for an image of another shape.
        """
        start = time.perf_counter()
        if gamma > 0 and gamma not in self._resident.at:
            raise InputError("gamma", gamma, f"at most 0 or one of {sorted(self._resident.at)}")
        shape = (self._image_size, self._image_size, 3)
        for payload in payloads:
            if payload.task not in self._row:
                raise InputError("task", payload.task, f"one of {', '.join(self._row)}")
            if payload.image.shape != shape or payload.image.dtype != np.uint8:
                given = f"{payload.image.dtype} of shape {payload.image.shape}"
                raise InputError("image", given, f"uint8 of shape {shape}")
        run = partial(self._run_piece, gamma)
        rows = self._pieces.run(gamma, f"a batch at gamma {gamma}", payloads, run, run)
        return Run(tuple(rows), time.perf_counter() - start)

    def _run_piece(self, gamma: int, payloads: Sequence[Payload]) -> list[NDArray[np.float32]]:
        images, task_rows = [p.image for p in payloads], [self._row[p.task] for p in payloads]
        with torch.inference_mode():
            if self._graphs is None or self._staging is None or len(images) > self._execution.buckets[-1]:
                pixel_BHWC = torch.from_numpy(np.stack(images)).to(self._device)
                computed_BK = self._classify(gamma, pixel_BHWC, torch.tensor(task_rows, device=self._device))
            else:
                self._staging.load(images, task_rows)
                computed_BK = self._graphs.run(gamma, len(images))
            probability_BK = computed_BK.cpu().numpy()  # waits for the device
        classes = [len(self._tasks[p.task].classes) for p in payloads]
        return [row[:count].copy() for row, count in zip(probability_BK, classes, strict=True)]

    def _classify(self, gamma: int, pixel_BHWC: Tensor, task_B: Tensor) -> Tensor:
        """Return probabilities [B, K] in float32.

        Graphs record this function, so it never waits for the device and reads no tensor of the host.
        """
        adapters, point = self._resident.at.get(gamma) or self._resident.at[0], self.points.get(gamma)
        if point is not None:
            (feature_BD,) = self._read(point, pixel_BHWC)
        else:
            prompts_BLGD = adapters.prompts_TLGD.index_select(0, task_B) if gamma > 0 else None
            image_BCHW, masked = self._normalise(pixel_BHWC).to(self._dtype), gamma not in self._execution.unmasked
            feature_BD = self._model(image_BCHW, max(-gamma, 0), prompts_BLGD, masked)
        weight_BKD, bias_BK = adapters.weight_TKD.index_select(0, task_B), adapters.bias_TK.index_select(0, task_B)
        logit_BK = torch.einsum("bd,bkd->bk", feature_BD.float(), weight_BKD) + bias_BK
        return logit_BK.softmax(-1)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Batch sizes to which batches are padded; empty where none is padded."""
        return () if self._graphs is None else tuple(self._execution.buckets)

    @property
    def width(self) -> int:
        """Width of the features."""
        return self._model.width

    def _read(self, point: Point, pixel_BHWC: Tensor, ends: Sequence[int] | None = None) -> list[Tensor]:
        """Return what a head reads at an operating point, after these numbers of blocks or its own.

        Bytes are resized where that can be done, which is five times as fast.
        """
        if point.size != self._image_size:
            pixel_BCHW = pixel_BHWC.permute(0, 3, 1, 2)
            pixel_BCHW = pixel_BCHW if self._device.type == "cpu" else pixel_BCHW.float()
            size = (point.size, point.size)
            pixel_BHWC = interpolate(pixel_BCHW, size, mode="bilinear", antialias=True).permute(0, 2, 3, 1)
        image_BCHW = self._normalise(pixel_BHWC).to(self._dtype)
        return self._model.at_ends(point, image_BCHW, ends or (point.blocks,))

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self._model.depth

    @property
    def dimensions(self) -> Dimensions:
        """What operating points of the backbone are made from. Raises `BackboneError` where it has none."""
        return self._model.dimensions

    def features(self, image_BHWC: NDArray[np.uint8], gamma: int = 0) -> NDArray[np.float32]:
        """Return the backbone's own features [B, D] at a gamma from 0 down, without any task."""
        with torch.inference_mode():
            pixel_BHWC = torch.from_numpy(np.ascontiguousarray(image_BHWC)).to(self._device)
            image_BCHW = self._normalise(pixel_BHWC).to(self._dtype)
            masked = gamma not in self._execution.unmasked
            feature_BD: NDArray[np.float32] = self._model(image_BCHW, -gamma, None, masked).float().cpu().numpy()
        return feature_BD

    def features_at(
        self, image_BHWC: NDArray[np.uint8], forward: Point, ends: Sequence[int]
    ) -> list[NDArray[np.float32]]:
        """Return what a head reads at a point after each of these numbers of blocks, the last of which is the point's."""
        with torch.inference_mode():
            pixel_BHWC = torch.from_numpy(np.ascontiguousarray(image_BHWC)).to(self._device)
            return [read.float().cpu().numpy() for read in self._read(forward, pixel_BHWC, ends)]


class Adapters(NamedTuple):
    """Prompts and heads of all tasks at one gamma. A class that a task lacks has weight 0 and bias -inf: probability 0."""

    weight_TKD: Tensor
    bias_TK: Tensor
    prompts_TLGD: Tensor  # no prompts (G = 0) at gamma 0


class ResidentAdapters:
    """The adapters on the device: `at[gamma]` for every setting of which some task has a head and all can serve it.

    With `spare`, tensors have room for more tasks and classes than there are: a captured CUDA graph reads tensors by
    address, and a task that fits is copied in.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, spare: bool) -> None:
        self.at: dict[int, Adapters] = {}
        self._device, self._dtype, self._spare = device, dtype, spare

    def fill(self, tasks: Sequence[Task], gammas: Set[int]) -> bool:
        """Replace all tasks by these, at these settings; their order is that of the rows. All are taken, or none.

        Returns True where tensors were replaced, so that a captured graph, which holds their addresses, must be
        renewed.
        """
        stacked = {gamma: self._stacked(tasks, gamma) for gamma in gammas}
        fits = stacked.keys() == self.at.keys() and all(
            own.shape == new.shape for gamma in gammas for own, new in zip(self.at[gamma], stacked[gamma], strict=True)
        )
        if not (self._spare and fits):
            self.at = stacked
            return True
        for gamma in gammas:
            for own, new in zip(self.at[gamma], stacked[gamma], strict=True):
                own.copy_(new)
        return False

    def _stacked(self, tasks: Sequence[Task], gamma: int) -> Adapters:
        """Return the adapters on the device: prompts in the model's type, heads in float32, which costs next to nothing."""
        heads: Mapping[str, tuple[Tensor, Tensor]] = {
            task.name: (torch.tensor(task.head(gamma).weight), torch.tensor(task.head(gamma).bias)) for task in tasks
        }
        rows = self._room(len(tasks))
        classes = self._room(max(len(bias_K) for _, bias_K in heads.values()))
        weight_TKD = torch.zeros(rows, classes, next(iter(heads.values()))[0].shape[1])
        bias_TK = torch.full((rows, classes), -torch.inf)
        for row, (weight_KD, bias_K) in enumerate(heads.values()):
            weight_TKD[row, : len(bias_K)], bias_TK[row, : len(bias_K)] = weight_KD, bias_K
        prompts_TLGD = torch.zeros(rows, 0, 0, 0)
        if 0 < gamma < FIRST_POINT:
            known_TLGD = torch.stack([torch.tensor(task.prompts[gamma]) for task in tasks])
            prompts_TLGD = torch.cat([known_TLGD, known_TLGD.new_zeros(rows - len(tasks), *known_TLGD.shape[1:])])
        device = self._device
        return Adapters(weight_TKD.to(device), bias_TK.to(device), prompts_TLGD.to(device, self._dtype))

    def _room(self, count: int) -> int:
        """Return how many rows to reserve for `count`: the next power of two, at least 8, where room is spared."""
        return max(8, 1 << (count - 1).bit_length()) if self._spare else count


class _Waiting:
    """A place for a batch that was sent ahead, in pinned memory and on the device."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.host_BHWC = torch.zeros(shape, dtype=torch.uint8, pin_memory=cuda)
        self.pixel_BHWC = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.images: tuple[NDArray[np.uint8], ...] = ()
        self.sent = torch.cuda.Event() if cuda else None  # recorded when the batch is on its way

    def holds(self, images: Sequence[NDArray[np.uint8]]) -> bool:
        return len(images) == len(self.images) and all(a is b for a, b in zip(images, self.images, strict=True))


class Staging:
    """Device buffers `pixel_BHWC` (uint8) and `task_B` (int64) at fixed addresses; a batch fills their first rows.

    Images are packed into pinned memory in chunks. While one chunk is packed, a second CUDA stream copies the one before:
    packing 64 images of 224 x 224 takes about as long as their transfer. A batch can be sent ahead, by another thread,
    while the batch before it runs: it waits in memory of its own on the device until it is loaded.
    """

    def __init__(self, rows: int, image_size: int, device: torch.device) -> None:
        cuda = device.type == "cuda"
        shape = (rows, image_size, image_size, 3)
        self.pixel_BHWC = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.task_B = torch.zeros(rows, dtype=torch.int64, device=device)
        self._pixel_BHWC = torch.zeros(shape, dtype=torch.uint8, pin_memory=cuda)
        self._task_B = torch.zeros(rows, dtype=torch.int64, pin_memory=cuda)
        self._device, self._side = device, torch.cuda.Stream(device) if cuda else None
        self._ahead = torch.cuda.Stream(device) if cuda else None
        self._waiting, self._turn = [_Waiting(shape, device) for _ in range(AHEAD)], 0

    def send(self, images: Sequence[NDArray[np.uint8]]) -> None:
        """Copy images to the device for a later `load` of the same arrays, beside what runs there; any thread may call it.

        At most one batch may be sent and not loaded yet while another one is being loaded.
        """
        waiting, self._turn = self._waiting[self._turn], (self._turn + 1) % AHEAD
        waiting.images = ()
        self._pack(images, waiting.host_BHWC, waiting.pixel_BHWC, self._ahead)
        if waiting.sent is not None:
            waiting.sent.record(self._ahead)
        waiting.images = tuple(images)

    def load(self, images: Sequence[NDArray[np.uint8]], tasks: Sequence[int]) -> None:
        """Copy images and the tasks' row numbers into the buffers, for work queued on the current stream afterwards.

        The batch before must have ended, as its pinned memory is used again.
        """
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._device))
        self._task_B[: len(tasks)] = torch.tensor(tasks)
        _copy(self._task_B, self.task_B, slice(0, len(tasks)), self._side)
        waiting = next((waiting for waiting in self._waiting if waiting.holds(images)), None)
        if waiting is None:
            self._pack(images, self._pixel_BHWC, self.pixel_BHWC, self._side)
        else:
            if waiting.sent is not None:
                torch.cuda.current_stream(self._device).wait_event(waiting.sent)
            self.pixel_BHWC[: len(images)].copy_(waiting.pixel_BHWC[: len(images)])
            waiting.images = ()
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)

    @staticmethod
    def _pack(
        images: Sequence[NDArray[np.uint8]], host_BHWC: Tensor, device_BHWC: Tensor, stream: torch.cuda.Stream | None
    ) -> None:
        packed_BHWC = host_BHWC.numpy()
        for start in range(0, len(images), CHUNK):
            part = slice(start, min(start + CHUNK, len(images)))
            np.stack(images[part], out=packed_BHWC[part])
            _copy(host_BHWC, device_BHWC, part, stream)


def _copy(host: Tensor, device: Tensor, part: slice, stream: torch.cuda.Stream | None) -> None:
    with torch.cuda.stream(stream) if stream is not None else nullcontext():
        device[part].copy_(host[part], non_blocking=True)


def normaliser(backbone: Backbone, device: torch.device | str) -> Callable[[Tensor], Tensor]:
    """Return the function from pixels, uint8 [B, H, W, C], to the backbone's input, float [B, C, H, W]."""
    mean_C11 = torch.tensor(backbone.mean, device=device).view(3, 1, 1)
    std_C11 = torch.tensor(backbone.std, device=device).view(3, 1, 1)
    return lambda pixel_BHWC: (pixel_BHWC.permute(0, 3, 1, 2).float() / 255 - mean_C11) / std_C11


def read_all(
    runtime: TokensRuntime, images: Any, rows: NDArray[np.int64], size: int, forward: Point, ends: Sequence[int]
) -> dict[int, NDArray[np.float32]]:
    """Return what heads read of these rows of a task's pictures, after each of these numbers of blocks of a forward."""
    parts = [
        runtime.features_at(images.batch(rows[at : at + ROWS], size), forward, ends) for at in range(0, len(rows), ROWS)
    ]
    return {end: np.concatenate(read) for end, read in zip(ends, zip(*parts, strict=True), strict=True)}


def read_of(feature_NF: NDArray[np.float32], reads: str) -> NDArray[np.float32]:
    """Return the part of the features of both, class token and mean of patches, that a head reads."""
    width = feature_NF.shape[1] // 2
    return {CLASS: feature_NF[:, :width], MEAN: feature_NF[:, width:], BOTH: feature_NF}[reads]


def load_model(backbone: Backbone) -> AdaptiveViT:
    """Return the backbone as a module, frozen and in evaluation mode."""
    vit = create_vit(backbone.architecture, backbone.options)
    vit.load_state_dict({name: torch.from_numpy(np.array(w)) for name, w in backbone.weights.items()})
    model = AdaptiveViT(vit).eval()
    model.requires_grad_(False)
    return model
