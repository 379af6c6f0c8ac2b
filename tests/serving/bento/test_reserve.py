"""Memory that was taken at the start serves later peaks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serving.bento.reserve import LARGE, SMALL

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
