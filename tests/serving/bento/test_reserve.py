"""Memory that was taken at the start serves later peaks, of all threads."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from serving.bento.reserve import LARGE, SMALL, reserve

CONNECTIONS = 1024
PROGRAM = """
import gc, sys
from pathlib import Path
from resource import getpagesize
from serving.bento.reserve import reserve

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize() / 2**20

def waiting():
    small = [[object(), [i], {"a": i}, bytes(i % 400)] for i in range(40)]
    return small, bytearray(3000), [0] * 200

kept = reserve(int(sys.argv[1]))
before = resident()
for _ in range(3):
    connections = [waiting() for _ in range(900)]
    del connections
    gc.collect()
print(before, resident())
"""


def growth(connections: int) -> tuple[float, float]:
    """Return the megabytes that a process with a reserve for so many connections has, and those that a peak adds."""
    command = [sys.executable, "-c", PROGRAM, str(connections)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(float, run.stdout.split())
    return before, after - before


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
def test_a_peak_adds_no_memory_where_it_was_reserved_and_does_where_it_was_not():
    (bare, without), (reserved, added) = growth(0), growth(CONNECTIONS)
    size = CONNECTIONS * (SMALL + LARGE) / 2**20
    assert size <= reserved - bare < 1.2 * size
    assert added < 1 < 2 < without


ARENAS = """
import ctypes, sys
from pathlib import Path
from threading import Barrier, Thread
from serving.bento.reserve import share_one_arena

if "shared" in sys.argv:
    share_one_arena()
libc, addresses, barrier = ctypes.CDLL(None), [], Barrier(4)
libc.malloc.restype = ctypes.c_void_p

def allocate():
    barrier.wait()
    addresses.extend(libc.malloc(2000) for _ in range(100))

threads = [Thread(target=allocate) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
(heap,) = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
first, last = (int(end, 16) for end in heap.split("-"))
print(sum(not first <= address < last for address in addresses))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_threads_share_an_arena():
    def elsewhere(*arguments: str) -> int:
        command = [sys.executable, "-c", ARENAS, *arguments]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert elsewhere() > 0
    assert elsewhere("shared") == 0


def test_what_stays_is_a_block_in_each_half_megabyte_of_either_size_and_the_last():
    kept = reserve(128)
    small, large = ([block for block in kept if len(block) == size] for size in (512 - sys.getsizeof(b""), 64 * 1024))
    assert len(small) + len(large) == len(kept)
    assert (len(small), len(large)) == (9 + 1 + 1, 3 + 1)  # of 4.5 MiB with their heads, and 1.25 MiB
    assert sys.getsizeof(small[0]) == 512
    assert len(reserve(0)) == 0
