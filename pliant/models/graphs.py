"""One captured graph per (gamma, batch bucket), replayed over buffers that never move. Knows tensors, no task and no model.

Launching some 400 small kernels from Python costs more than a GPU needs for a batch at gamma -20; a graph is one
launch. CUDA graphs by themselves and not through `torch.compile`: capturing takes well under a second a shape against
some 20 seconds of compiling (8 gammas x 7 buckets), and needs no compiler on the machine.

Shape suffixes: B rows of the largest bucket, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

BUCKETS = (1, 2, 4, 8, 16, 32, 64)

Replay = Callable[[], Tensor]
Forward = Callable[[int, Tensor, Tensor], Tensor]
"""(gamma, pixels [n, H, W, 3], task rows [n]) -> probabilities [n, K], all on the device."""


class Capture(Protocol):
    def __call__(self, call: Callable[[], Tensor]) -> Replay:
        """Record what `call` does; the replay does it again on the same addresses. Raises `RuntimeError` if it cannot."""


class CudaCapture:
    """Graphs of one device in one memory pool: they run one at a time, and a result is read before the next run."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, call: Callable[[], Tensor]) -> Replay:
        with torch.cuda.device(self._device):
            self._warm_up(call)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                out = call()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    def _warm_up(self, call: Callable[[], Tensor]) -> None:
        """Libraries choose kernels and take workspaces in the first calls, which must not be recorded; on a stream apart."""
        apart, present = torch.cuda.Stream(), torch.cuda.current_stream()
        apart.wait_stream(present)
        with torch.cuda.stream(apart):
            for _ in range(3):
                call()
        present.wait_stream(apart)
        torch.cuda.synchronize()


class Graphs:
    """Runs `forward` on the first rows of its own input buffers, padded to the next bucket.

    `pixel_BHWC` and `task_B` are those buffers; the caller writes a batch into their first rows before `run`.
    """

    def __init__(
        self, forward: Forward, capture: Capture, pixel_BHWC: Tensor, task_B: Tensor, buckets: Sequence[int] = BUCKETS
    ) -> None:
        self._forward, self._capture, self._buckets = forward, capture, tuple(buckets)
        self._pixel_BHWC, self._task_B = pixel_BHWC, task_B
        self._replays: dict[tuple[int, int], Replay] = {}
        self._works = True

    @property
    def captured(self) -> frozenset[tuple[int, int]]:
        """(gamma, bucket) of all graphs there are."""
        return frozenset(self._replays)

    def run(self, gamma: int, count: int) -> Tensor:
        """Probabilities [count, K] of the first `count` rows. Valid until the next run. Captures what it lacks."""
        size = bucket(count, self._buckets)
        self._pixel_BHWC[count:size] = self._pixel_BHWC[:1]
        self._task_B[count:size] = self._task_B[:1]
        return self._replay(gamma, size)()[:count]

    def renew(self) -> None:
        """What the graphs read was replaced: capture all of them again.

        The former ones live until then: their pool must not fall empty, and the new ones take what is free in it.
        """
        former, self._replays = self._replays, {}
        for gamma, size in former:
            self._replay(gamma, size)

    def _replay(self, gamma: int, size: int) -> Replay:
        if (gamma, size) not in self._replays:
            pixels, rows = self._pixel_BHWC[:size], self._task_B[:size]
            self._replays[gamma, size] = self._recorded(lambda: self._forward(gamma, pixels, rows))
        return self._replays[gamma, size]

    def _recorded(self, call: Callable[[], Tensor]) -> Replay:
        """The call itself where capturing failed once: slower, and right."""
        if self._works:
            try:
                return self._capture(call)
            except RuntimeError as error:
                self._works = False
                warnings.warn(f"graphs cannot be captured here, running without: {error}", stacklevel=2)
        return call


def bucket(count: int, buckets: Sequence[int] = BUCKETS) -> int:
    """The smallest bucket that holds `count` rows; `count` itself beyond the largest."""
    return next((size for size in buckets if size >= count), count)
