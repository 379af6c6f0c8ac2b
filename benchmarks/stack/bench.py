"""What `make stack-test` measures, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks import harness
from benchmarks.harness import Context, Measured, Part
from benchmarks.results import Target
from benchmarks.stack.monitoring import check_rules
from benchmarks.stack.whole import whole
from pliant import systems


def _rules(_context: Context) -> Measured:
    from rich.console import Console

    said = check_rules()
    if said:
        Console().print(said, markup=False)
    target = Target("promtool's complaints about rules, configuration and their tests", bool(said), "<=", 0)
    return [target], {"said": said}


def _tracing(context: Context) -> Measured:
    """Measure at tokens, whose requests are the lightest."""
    measured: Measured = systems.system("tokens").part("benchmarks", "watch.tracing").tracing(context)
    return measured


PARTS: Mapping[str, Part] = {"whole": Part(whole, 300.0), "rules": Part(_rules, 5.0), "tracing": Part(_tracing, 300.0)}


def bench(names: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit status."""
    return harness.run("stack", PARTS, True, names)
