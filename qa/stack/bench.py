"""What `make stack-test` measures, part by part."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks import harness
from benchmarks.harness import Context, Measured, Part
from benchmarks.places import ROOT
from benchmarks.results import Target
from pliant import systems
from qa.stack.backup import backup
from qa.stack.commands import follow
from qa.stack.dashboards import dashboards
from qa.stack.monitoring import check_rules
from qa.stack.programs import program
from qa.stack.whole import whole


def _rules(_context: Context) -> Measured:
    from rich.console import Console

    said = check_rules()
    if said:
        Console().print(said, markup=False)
    target = Target("promtool's complaints about rules, configuration and their tests", bool(said), "<=", 0)
    return [target], {"said": said}


def _faults(_context: Context) -> Measured:
    """Run the tests that take Postgres away while flows run and services serve."""
    for name in ("initdb", "postgres"):
        program(name)  # or the tests would be skipped
    done = subprocess.run([sys.executable, "-m", "pytest", "qa/stack/test_faults_database.py"], check=False, cwd=ROOT)
    return [Target("tests of faults that fail", int(done.returncode != 0), "<=", 0)], {}


def _tracing(context: Context) -> Measured:
    """Measure at tokens, whose requests are the lightest."""
    measured: Measured = systems.system("tokens").part("benchmarks", "watch.tracing").tracing(context)
    return measured


PARTS: Mapping[str, Part] = {
    "whole": Part(whole, 300.0),
    "dashboards": Part(dashboards, 600.0),
    "backup": Part(backup, 400.0),
    "rules": Part(_rules, 5.0),
    "faults": Part(_faults, 500.0),
    "commands": Part(follow, 900.0),
    "tracing": Part(_tracing, 300.0),
}


def bench(names: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit status."""
    return harness.run("stack", PARTS, True, names)
