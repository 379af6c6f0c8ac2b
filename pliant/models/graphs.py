"""One captured graph per (gamma, batch bucket), replayed over buffers that never move. Knows tensors, no task and no
model.

Launching some 400 small kernels from Python takes longer than a GPU needs for a batch at gamma -20, and a graph is one
launch. Plain CUDA graphs serve better than `torch.compile`: capturing a shape takes well under a second instead of some
20 seconds of compiling (8 gammas x 7 buckets), and needs no compiler on the machine.

Shape suffixes: B rows of the largest bucket, H and W pixels, C channels, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from pliant import fallbacks
from pliant.latency import bucket

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
