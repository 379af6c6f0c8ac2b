"""Pages of preempted sequences on the host, and the way there and back. Knows views of pages and nothing of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch


class SwapSpace:
    """`views`: tensors whose first axis is a device's pages. `pages` of each fit here, pinned where that device is a GPU.

    Copies run on the stream that `on_stream` enters: the same that computes, so that none overtakes another.
    """

    def __init__(
        self, views: Sequence[torch.Tensor], pages: int, on_stream: Callable[[], AbstractContextManager[object]]
    ) -> None:
        pinned = views[0].device.type == "cuda"
        self._views, self._on_stream, self.pages = views, on_stream, pages
        self._kept = [torch.empty((pages, *view.shape[1:]), dtype=view.dtype, pin_memory=pinned) for view in views]
        self._free = list(range(pages - 1, -1, -1))
        self._places: dict[int, list[int]] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._places

    @property
    def used(self) -> int:
        return self.pages - len(self._free)

    def swap_out(self, id: int, pages: Sequence[int]) -> None:
        """Copy these pages of the device here. The caller's books say that they fit."""
        assert id not in self and len(pages) <= len(self._free), (
            f"{len(pages)} pages, {len(self._free)} free on the host"
        )
        places = [self._free.pop() for _ in pages]
        with self._on_stream():
            for view, kept in zip(self._views, self._kept, strict=True):
                for place, page in zip(places, pages, strict=True):
                    kept[place].copy_(view[page], non_blocking=True)
        self._places[id] = places

    def swap_in(self, id: int, pages: Sequence[int]) -> None:
        """Copy what `swap_out` copied into these pages of the device, in the same order; `pages` may be more."""
        with self._on_stream():
            for view, kept in zip(self._views, self._kept, strict=True):
                for place, page in zip(self._places[id], pages, strict=False):
                    view[page].copy_(kept[place], non_blocking=True)
        self.free(id)

    def free(self, id: int) -> None:
        """Give the pages of `id` back, where it has any."""
        self._free.extend(self._places.pop(id, ()))

    def check(self) -> None:
        """Raises AssertionError where a place is kept twice or lost."""
        places = sorted([*self._free, *(place for kept in self._places.values() for place in kept)])
        assert places == list(range(self.pages)), "pages on the host"
