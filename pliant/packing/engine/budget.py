"""The memory of a model and its pages on one device: how many pages fit, and a sentence for what does not.

Sizes are bytes.
"""

from __future__ import annotations

from pliant.errors import InputError
from pliant.memory import gib
from pliant.packing.scheduling.request import Memory

GPU_SHARE, CPU_SHARE = 0.9, 0.5
"""Shares of the free memory that pages may take by default: the rest is for what an iteration computes, and on a CPU for
the other processes of the machine."""


def pages_within(free: int, weights: int, page: int, on_gpu: bool) -> int:
    """Return the number of pages that fit into the free memory beside the weights; 0 where none does.

    `page`: the bytes of one page.
    """
    return max(int((GPU_SHARE if on_gpu else CPU_SHARE) * (free - weights) // page), 0)


def check_fits(memory: Memory, token_bytes: int, weights: int, free: int, device: str) -> None:
    """Raise `InputError` where a model's weights and its pages need more than the device has free.

    `token_bytes`: of one token's keys and values. On a CPU the pages of preempted sequences are beside the others.
    """
    pages = memory.pages + (memory.host_pages if device == "cpu" else 0)
    cache = pages * memory.page_tokens * token_bytes
    if weights + cache > free:
        raise InputError(
            "memory",
            f"{pages} pages of {memory.page_tokens} tokens ({gib(cache)}) beside {gib(weights)} of weights",
            f"at most {gib(free)} in all, which {device} has free: ask for fewer pages (memory.pages, memory.megabytes), "
            "or for none, and they follow from what is free",
        )
