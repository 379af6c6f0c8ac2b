"""The loading time of a variant is measured, from its file to its first answer."""

from __future__ import annotations

import time

from profiling.tokens.loading import loading
from tests.fixtures.tokens.samples import tiny_variant


def test_reading_the_file_counts_and_is_done_as_often_as_told():
    variant, reads = tiny_variant("small", {"digits": ["zero", "one"]}, "cpu"), []

    def read():
        reads.append(None)
        until = time.perf_counter() + 0.2
        while time.perf_counter() < until:
            pass
        return variant

    assert loading(read, (1, 2), repeats=2) >= 0.2
    assert len(reads) == 2
