"""The memory of a plan in pages of a size that vLLM has."""

from __future__ import annotations

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory

CPU_MULTIPLE = 32  # tokens of a page on a CPU, or several times as many


def pages_of(memory: Memory, device: str) -> Memory:
    """Return the memory in pages that vLLM has on this device: as many tokens, on a CPU in pages of 32 or a multiple.

    Raises `InputError` for less than one page.
    """
    if device != "cpu" or memory.page_tokens % CPU_MULTIPLE == 0:
        return memory
    size = -(-memory.page_tokens // CPU_MULTIPLE) * CPU_MULTIPLE
    pages = memory.pages * memory.page_tokens // size
    if not pages:
        raise InputError("pages", f"{memory.pages} of {memory.page_tokens} tokens", f"at least {size} tokens in all")
    return Memory(pages, size, 0, memory.step_tokens, memory.sequences)
