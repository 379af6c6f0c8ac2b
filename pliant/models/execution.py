"""How models of any system run fast, and in what memory there is: captured graphs, packed layers, batches in pieces.

*Graphs*: one per (gamma, batch bucket), replayed over buffers that never move. Launching some 400 small kernels from Python
takes longer than a GPU needs for a batch at gamma -20, and a graph is one launch. Plain CUDA graphs serve better than
`torch.compile`: capturing a shape takes well under a second instead of some 20 seconds of compiling (8 gammas x 7 buckets),
and needs no compiler on the machine.

*Packed layers*: linear layers of a frozen model in the layout that this processor multiplies fastest. On x86 torch sends
`linear` to MKL, which keeps to 256-bit instructions on processors other than Intel's. oneDNN uses 512-bit ones wherever
they exist, and adds the bias and applies GELU while a result is still in the cache. Weights are put into its blocked layout
once, as torch's compiler does when it freezes a model. For inference alone: there are no gradients.

Shape suffixes: B rows of the largest bucket, H and W pixels, C channels, K classes.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from pliant import fallbacks
from pliant.latency import bucket
from pliant.precision import X86

P = TypeVar("P")
R = TypeVar("R")

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes to which batches are padded."""

Replay = Callable[[], Tensor]
Forward = Callable[[int, Tensor, Tensor], Tensor]
"""(gamma, pixels [n, H, W, 3], task rows [n]) -> probabilities [n, K], all on the device."""


class Capture(Protocol):
    """Records the work of a call, so that it can be replayed."""

    def __call__(self, call: Callable[[], Tensor]) -> Replay:
        """Record what `call` does and return its replay on the same addresses. Raises `RuntimeError` if it fails."""


@cache
def capture_stream(index: int) -> torch.cuda.Stream:
    """Return this process's one stream for warm-ups and captures on the GPU of this index.

    Libraries such as cuBLAS keep a workspace for every stream that they see, and torch hands out 32 streams in turn.
    """
    return torch.cuda.Stream(index)


class CudaCapture:
    """Captures graphs of one device in one memory pool. They run one at a time, each result read before the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._failed: list[torch.cuda.CUDAGraph] = []

    def __call__(self, call: Callable[[], Tensor]) -> Replay:
        """Capture a call. A failure raises `RuntimeError`, and later captures and calls run as if it had not been tried."""
        with torch.cuda.device(self._device):
            present, apart = torch.cuda.current_stream(), capture_stream(torch.cuda.current_device())
            # The call runs first on the other stream, as libraries choose kernels and allocate then: not to be recorded.
            apart.wait_stream(present)
            with torch.cuda.stream(apart):
                for _ in range(3):
                    call()
            present.wait_stream(apart)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=apart):
                    out = call()
            except BaseException:
                torch.cuda.set_stream(present)  # torch leaves the stream of a failed capture the current one
                self._abandon(graph)
                raise

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Undo what a failed capture leaves in torch's allocators.

        Where the capture could not be ended, the pool is still being allocated to, and a second capture into it would be
        refused. So that is ended, and later graphs get another pool. The allocator of pinned memory keeps a reference to
        the graph, which must therefore live on.
        """
        self._failed.append(graph)
        with suppress(RuntimeError):  # the capture was ended: nothing is allocated to the pool
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
        self._pool = torch.cuda.graph_pool_handle()


def reason_of(error: BaseException) -> str:
    """Return in one line why a call or its capture failed: of a failed capture the first error, not what it led to."""
    first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
    return (str(first).strip().splitlines() or [type(first).__name__])[0]


class Graphs:
    """Runs `forward` on the first rows of fixed input buffers, padded to the next bucket.

    The caller writes a batch into the first rows of the buffers `pixel_BHWC` and `task_B` before `run`.
    """

    def __init__(
        self, forward: Forward, capture: Capture, pixel_BHWC: Tensor, task_B: Tensor, buckets: Sequence[int] = BUCKETS
    ) -> None:
        self._forward, self._capture, self._buckets = forward, capture, tuple(buckets)
        self._pixel_BHWC, self._task_B = pixel_BHWC, task_B
        self._replays: dict[tuple[int, int], Replay] = {}

    def run(self, gamma: int, count: int) -> Tensor:
        """Return the outputs of the first `count` rows, valid until the next run. Captures a missing graph."""
        size = bucket(count, self._buckets)
        self._pixel_BHWC[count:size] = self._pixel_BHWC[:1]
        self._task_B[count:size] = self._task_B[:1]
        return self._replay(gamma, size)()[:count]

    def renew(self) -> None:
        """Capture all graphs again, after tensors that they read were replaced.

        The former graphs live until then, so that their memory pool stays and the new ones reuse what is free in it.
        """
        former, self._replays = self._replays, {}
        for gamma, size in former:
            self._replay(gamma, size)

    def _replay(self, gamma: int, size: int) -> Replay:
        if (gamma, size) not in self._replays:
            pixels, rows = self._pixel_BHWC[:size], self._task_B[:size]
            self._replays[gamma, size] = self._recorded(gamma, size, lambda: self._forward(gamma, pixels, rows))
        return self._replays[gamma, size]

    def _recorded(self, gamma: int, size: int, call: Callable[[], Tensor]) -> Replay:
        """Return the replay, or the call itself where it cannot be captured, which is slower but right."""
        try:
            return self._capture(call)
        except RuntimeError as error:
            what = f"the graph of gamma {gamma} at batch {size}"
            fallbacks.note(
                "capture", f"{what} cannot be captured, so that batches of it run without: {reason_of(error)}"
            )
            return call


class Pieces:
    """Halves a batch that the device lacks memory for until it fits, and begins with that size from then on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._most: dict[int, int] = {}  # key -> payloads of a piece, where the whole did not fit
        self._lacks: dict[int, str] = {}  # the same, as a sentence

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Return a sentence for each key whose batches run in pieces."""
        return tuple(self._lacks.values())

    def run(
        self,
        key: int,
        name: str,
        payloads: Sequence[P],
        whole: Callable[[Sequence[P]], list[R]],
        part: Callable[[Sequence[P]], list[R]] | None,
    ) -> list[R]:
        """Return the results of `whole`, one a payload, or of `part` for piece after piece where memory has been lacking.

        `key` and `name`: what the size is remembered under, a launch's setting, and what sentences call it. `part` None:
        no piece takes less memory than the whole. Raises `torch.OutOfMemoryError` where not even one payload fits.
        """
        results: list[R] = []
        while len(results) < len(payloads):
            most = self._most.get(key)
            piece = payloads[len(results) :][:most]
            try:
                results += whole(piece) if most is None or part is None else part(piece)
                continue
            except torch.OutOfMemoryError:
                if part is None or (most is not None and len(piece) == 1):
                    raise
                self._most[key] = most = max(1, len(piece) // 2)
                lack = f"{name} runs at most {most} at a time: the device lacked memory for {len(piece)}"
                self._lacks[key] = lack
                fallbacks.note("memory", lack, key, most)
            if self._device.type == "cuda":
                torch.cuda.empty_cache()  # after the error is gone, whose frames hold what the call had allocated
        return results


_FEW = 800_000
"""Multiplications below which a call of oneDNN costs more time (about 10 microseconds) than it saves."""


class PackedLinear(nn.Module):
    """Computes `activation(x @ weight.T + bias)` without gradients. `activation`: "none" or "gelu" (the exact one)."""

    def __init__(self, layer: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        # Plain attributes, since a weight in oneDNN's layout can be neither moved nor saved like a parameter.
        weight = layer.weight.detach()
        self._few = _FEW // weight.numel()
        self._plain = weight if self._few else None
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._activation = activation
        self._call = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        if self._plain is not None and x.numel() <= self._few * x.shape[-1]:
            plain = linear(x, self._plain, self._bias)
            return gelu(plain) if self._activation == "gelu" else plain
        out: Tensor = self._call(x, self._weight, self._bias, self._activation, [], "none")
        return out


def can_pack() -> bool:
    """Return whether this build of torch and this processor have what `PackedLinear` needs."""
    return (
        platform.machine() in X86
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
