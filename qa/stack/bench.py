"""What `make stack-test` measures, part by part."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import harness
from benchmarks.harness import Context, Measured
from benchmarks.parts import Part
from benchmarks.places import ROOT
from benchmarks.results import Target
from pliant import systems
from qa.stack.backup import backup
from qa.stack.changes import changes
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


PARTS: Mapping[str, Part] = {
    "whole": Part("seconds from nothing to a whole stack that serves", whole, 300.0),
    "dashboards": Part("panels and alerts that show what happened", dashboards, 600.0),
    "backup": Part("what is lost where a back-up is restored", backup, 400.0),
    "rules": Part("what promtool says of the rules", _rules, 5.0),
    "faults": Part("tests that take Postgres away", _faults, 500.0),
    "commands": Part("the pages' commands, one after the other", follow, 900.0),
    **{
        f"changes-{name}": Part(f"planted changes in {name} that are learnt from", partial(changes, name), 600.0)
        for name in systems.names()
    },
}


def bench(names: Sequence[str]) -> int:
    """Measure the named parts, or all; return the exit status."""
    return harness.run("stack", PARTS, True, names)
