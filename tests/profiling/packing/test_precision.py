"""The faster precision of a generator on a processor is measured in turns, and taken only where it gains enough."""

from __future__ import annotations

import pytest

from pliant.profiling.packing.precision import GAIN, REPEATS, WARMUP, fastest
from tests.fixtures.packing.generators import tiny_generator

BOTH = ("float32", "bfloat16")


class Clock:
    """Lets passes last what is said, in turns."""

    def __init__(self, *seconds: float) -> None:
        self.now, self.reads, self.seconds = 0.0, 0, seconds

    def __call__(self) -> float:
        passes, ends = divmod(self.reads, 2)
        self.now += self.seconds[passes % len(self.seconds)] if ends else 0.0
        self.reads += 1
        return self.now


@pytest.mark.parametrize(
    ("seconds", "best"),
    [((1.0, 0.5), "bfloat16"), ((1.0, 0.99 * GAIN), "bfloat16"), ((1.0, 0.95), "float32"), ((1.0, 3.0), "float32")],
)
def test_another_precision_is_taken_only_where_it_gains_a_tenth(seconds, best):
    clock = Clock(*seconds)
    chosen, medians = fastest(tiny_generator(), BOTH, 4, 1, clock)
    assert chosen == best
    assert medians == pytest.approx(dict(zip(BOTH, seconds, strict=True)))
    assert clock.reads == 2 * 2 * (WARMUP + REPEATS)
