"""Captures for tests of graphs without a GPU: the operations and the very tensors of a call, recorded and done again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx


class Recorded:
    """Like CUDA's: no Python runs again at a replay, tensors are those of the recording, the result is one buffer."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1
        with torch.no_grad():
            trace, out = make_fx(call)(), call()

        def replay() -> Tensor:
            self.replayed += 1
            return out.copy_(trace())

        return replay


def impossible(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    raise RuntimeError("operation not permitted when stream is capturing")
