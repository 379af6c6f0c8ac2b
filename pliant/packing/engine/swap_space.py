"""Copies the pages of preempted sequences to the host and back. Knows views of pages and no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch


class SwapSpace:
    """Host memory for `pages` pages. `views`: the device's tensors, whose first axis is pages.

    The memory is pinned for a GPU. Copies run on the stream that `on_stream` enters, which is the one that computes, so
    that they keep their order.
    """

    def __init__(
        self, views: Sequence[torch.Tensor], pages: int, on_stream: Callable[[], AbstractContextManager[object]]
    ) -> None:
        pinned = views[0].device.type == "cuda"
        self._views, self._on_stream, self.pages = views, on_stream, pages
        self._host = [torch.empty((pages, *view.shape[1:]), dtype=view.dtype, pin_memory=pinned) for view in views]
        self._free = list(range(pages - 1, -1, -1))
        self._slots: dict[int, list[int]] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._slots

    @property
    def used(self) -> int:
        return self.pages - len(self._free)

    def swap_out(self, id: int, pages: Sequence[int]) -> None:
        """Copy these pages of the device to the host. The caller makes sure that they fit."""
        assert id not in self and len(pages) <= len(self._free), (
            f"{len(pages)} pages, {len(self._free)} free on the host"
        )
        slots = [self._free.pop() for _ in pages]
        with self._on_stream():
            for view, host in zip(self._views, self._host, strict=True):
                for slot, page in zip(slots, pages, strict=True):
                    host[slot].copy_(view[page], non_blocking=True)
        self._slots[id] = slots

    def swap_in(self, id: int, pages: Sequence[int]) -> None:
        """Copy a sequence back into these pages of the device, in order, and free it here; `pages` may be more."""
        with self._on_stream():
            for view, host in zip(self._views, self._host, strict=True):
                for slot, page in zip(self._slots[id], pages, strict=False):
                    view[page].copy_(host[slot], non_blocking=True)
        self.free(id)

    def free(self, id: int) -> None:
        """Free the pages of `id`, if it has any."""
        self._free.extend(self._slots.pop(id, ()))

    def check(self) -> None:
        """Raises AssertionError if a page is used twice or lost."""
        slots = sorted([*self._free, *(slot for host in self._slots.values() for slot in host)])
        assert slots == list(range(self.pages)), "pages on the host"
