"""How many pages fit on a device, and what does not fit is refused with the numbers."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.packing.engine.model import check_fits, pages_within
from pliant.packing.scheduling.request import Memory

GIB = 1 << 30
MIB = 1 << 20


def test_pages_follow_from_what_the_weights_leave_of_the_free_memory():
    assert pages_within(80 * GIB, 30 * GIB, GIB, on_gpu=True) == 45
    assert pages_within(80 * GIB, 30 * GIB, GIB, on_gpu=False) == 25
    assert pages_within(20 * GIB, 30 * GIB, GIB, on_gpu=True) == 0


def test_what_fits_passes_to_the_byte_and_what_does_not_is_refused_with_the_numbers():
    memory = Memory(pages=64, page_tokens=16, host_pages=32)
    check_fits(memory, MIB, GIB, 2 * GIB, "cuda:1")
    wanted = r"memory is 64 pages of 16 tokens \(1 GiB\) beside 1 GiB of weights, but .* 2 GiB in all, which cuda:1"
    with pytest.raises(InputError, match=wanted) as caught:
        check_fits(memory, MIB, GIB, 2 * GIB - 1, "cuda:1")
    assert "\n" not in str(caught.value)


def test_on_a_cpu_the_pages_of_preempted_sequences_count_too():
    memory = Memory(pages=64, page_tokens=16, host_pages=32)
    check_fits(memory, MIB, 0, 3 * GIB // 2, "cpu")
    with pytest.raises(InputError, match=r"96 pages of 16 tokens \(1.5 GiB\)"):
        check_fits(memory, MIB, 0, 3 * GIB // 2 - 1, "cpu")
