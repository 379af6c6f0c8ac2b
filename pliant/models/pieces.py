"""Runs a batch in pieces once the device has lacked memory for the whole of it. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from pliant import fallbacks

P = TypeVar("P")
R = TypeVar("R")


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
