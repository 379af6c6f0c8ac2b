"""How long each stage of the demo will take on this machine, from a probe of some two seconds.

A stage costs seconds of tensor arithmetic, of Python in one process, of Python in two processes side by side (a service and
its clients, or two that start), and seconds of waiting (for a load, which lasts as long as it lasts). The costs are those of
two cores of a server, fitted to what the stages took there in two settings; the probe says how many
times slower this machine is at each.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

PROBE_SECONDS = 0.5  # of each of the three probes
# Seconds of the probe's training step, and of a round of its Python, where costs were measured.
STEP, ROUND = 0.0301, 0.000887

_PYTHON_PROBE = f"""
import ast, json, time
source = "def f(a, b):\\n    return [a + i * b for i in range(10) if i % 3]\\n" * 20
done, end = 0, time.perf_counter() + {PROBE_SECONDS}
while time.perf_counter() < end:
    json.loads(json.dumps({{"tree": ast.dump(ast.parse(source))}}))
    done += 1
print(done)
"""


@dataclass(frozen=True, slots=True)
class Speed:
    """How many times longer this machine takes than the one where costs were measured: above 1 is slower."""

    tensor: float
    python: float
    pair: float


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage by the name under which its progress is shown, and its costs in seconds where they were measured."""

    name: str
    tensor: float = 0.0
    python: float = 0.0
    pair: float = 0.0
    wait: float = 0.0

    def seconds(self, speed: Speed) -> float:
        """Return what the stage is expected to take at this speed."""
        work = self.tensor * speed.tensor + self.python * speed.python + self.pair * speed.pair
        return work + self.wait


def probe() -> Speed:
    """Measure this machine in some two seconds."""
    return Speed(_tensor_seconds() / STEP, _python_seconds(1) / ROUND, _python_seconds(2) / ROUND)


def _python_seconds(processes: int) -> float:
    """Return the seconds of a round in so many processes side by side."""
    command = [sys.executable, "-S", "-c", _PYTHON_PROBE]
    probes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    rounds = [int(process.communicate()[0]) for process in probes]
    return PROBE_SECONDS / max(sum(rounds) / len(rounds), 1)


def _tensor_seconds() -> float:
    """Time a training step of one encoder layer in the arithmetic that training takes here, with torch's own threads."""
    import torch

    from training.precision import lowered

    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    x_BND = torch.randn(32, 64, 128)

    def step() -> None:
        with lowered("auto", torch.device("cpu")):
            loss = layer(x_BND).square().mean()
        loss.backward()

    step()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < PROBE_SECONDS:
        step()
        steps += 1
    return (time.perf_counter() - start) / steps


@dataclass(slots=True)
class Stopwatch:
    """What each stage took, by its name; time between two stages counts to the later one.

    A stage that is not in `expected` counts to the next that is. `heard`: every stage that ended, with its own seconds.
    """

    expected: frozenset[str]
    seconds: dict[str, float] = field(default_factory=dict)
    heard: list[tuple[str, float]] = field(default_factory=list)
    last: float = field(default_factory=lambda: time.monotonic())

    def end(self, name: str, seconds: float) -> None:
        """Take the end of a stage (an observer of flows/progress.py)."""
        self.heard.append((name, round(seconds, 2)))
        if name in self.expected:
            now = time.monotonic()
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
            self.last = now


def announce(console: Console, speed: Speed, stages: Mapping[str, Sequence[Stage]]) -> None:
    """Print what comes and how long it will take here."""
    table = Table("", "stage", "about", title="What comes, and how long it takes on this machine")
    for system, its in stages.items():
        for index, stage in enumerate(its):
            table.add_row(system if index == 0 else "", stage.name, _duration(stage.seconds(speed)))
    table.add_section()
    whole = sum(stage.seconds(speed) for its in stages.values() for stage in its)
    table.add_row("", "all", _duration(whole), style="bold")
    console.print(table)


def compare(
    console: Console, speed: Speed, stages: Mapping[str, Sequence[Stage]], took: Mapping[str, Mapping[str, float]]
) -> None:
    """Print what each system was said to take, and took."""
    table = Table("", "said", "took", title="How long it took")
    for system, its in stages.items():
        said = sum(stage.seconds(speed) for stage in its if stage.name in took[system])
        table.add_row(system, _duration(said), _duration(sum(took[system].values())))
    console.print(table)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
