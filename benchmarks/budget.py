"""The time limit of a bench's quick setting: which parts have time on this machine, and how to run those that have none.

A bench asks before every part, with the seconds that the part takes on the machine of the slow setting (CONTRIBUTING.md);
a probe of a second says how much slower than that this machine is. What was left out is told with its command and does
not count as met.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from benchmarks.results import Target, exit_status

LIMIT = 570.0  # seconds; the quick setting of a bench ends within ten minutes
INCOMPLETE = 3
"""Exit status where every measured target is met, but parts were left out."""
GFLOPS, LOOPS = 100.0, 80e6  # a second of the slow setting: float32 products, rounds of an empty Python loop
PROBE = 0.4  # seconds, each of the two


@dataclass(slots=True)
class Budget:
    """The time of one bench. `limit` is None where nothing is left out: with --full, and where parts are named."""

    system: str
    limit: float | None
    slowness: float = 1.0  # of this machine over that of the slow setting
    products: float = 1.0  # the same of matrix products alone
    clock: Callable[[], float] = time.monotonic
    start: float = 0.0
    left_out: list[str] = field(default_factory=list)

    def allows(self, part: str, seconds: float, training: float = 0.0) -> bool:
        """Return whether `part` ends within the limit; say so where it does not.

        It takes `seconds` on the slow setting, and before that `training`, which is nothing but matrix products.
        """
        used, expected = self.clock() - self.start, seconds * self.slowness + training * self.products
        if self.limit is None or used + expected <= self.limit:
            return True
        self.leave_out(part, f"it takes about {expected:.0f} s here, and {used:.0f} of {self.limit:.0f} s are used")
        return False

    def leave_out(self, part: str, reason: str) -> None:
        """Tell that `part` is not measured, why, and how to run it."""
        self.left_out.append(part)
        Console().print(
            f"Left out: {reason}. To run it: pliant bench {self.system} --part {part}", highlight=False, markup=False
        )

    def status(self, targets: Sequence[Target]) -> int:
        """Return the exit status of the bench: 1 if a target is missed, 3 if nothing or not all was measured."""
        if self.left_out:
            commands = " ".join(f"--part {part}" for part in self.left_out)
            Console().print(f"Not measured, so not met: pliant bench {self.system} {commands}", highlight=False)
        if not targets:
            Console().print("Nothing was measured.")
        return exit_status(targets) or (0 if targets and not self.left_out else INCOMPLETE)


def begin(system: str, full: bool, names: Sequence[str]) -> Budget:
    """Return the budget of a bench that starts now; the machine is probed only where there is a limit."""
    start = time.monotonic()
    if full or names:
        return Budget(system, None, start=start)
    products, python = probe()
    return Budget(system, LIMIT, max(products, python), products, start=start)


def probe() -> tuple[float, float]:
    """Return how many times as long as the slow setting this machine takes for matrix products, and for Python."""
    return GFLOPS / _gflops(), LOOPS / _loops()


def _gflops(size: int = 256) -> float:
    import torch

    left, right = torch.ones(size, size), torch.ones(size, size)
    return 2e-9 * size**3 * _per_second(lambda: torch.mm(left, right))


def _loops(rounds: int = 10_000) -> float:
    def empty() -> None:
        for _ in range(rounds):
            pass

    return rounds * _per_second(empty)


def _per_second(act: Callable[[], object]) -> float:
    act()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < PROBE:
        act()
        count += 1
    return count / (time.perf_counter() - start)
