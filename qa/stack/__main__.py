"""`python -m qa.stack [--test] [PART...]`: run the stack for people to look at, or test it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from rich.console import Console

from pliant import systems
from pliant.benchmarks import harness
from pliant.benchmarks.harness import Context, Measured, Skipped
from pliant.benchmarks.parts import Part
from pliant.benchmarks.places import ROOT
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import settings
from qa.stack.backup import backup
from qa.stack.changes import changes
from qa.stack.commands import follow
from qa.stack.dashboards import dashboards
from qa.stack.monitoring import check_rules, prometheus
from qa.stack.programs import program
from qa.stack.proxy import proxy
from qa.stack.stack import SYSTEMS, stack
from qa.stack.whole import TRAINED, new_key, whole


def _rules(_context: Context) -> Measured:
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


def look() -> int:
    """Start everything, print the addresses, and wait. What was trained and recorded goes with the stack's Postgres."""
    home, console = settings.read().home / "stack", Console()
    with ExitStack() as running:
        client, monitor = new_key(home / "keys.json", "use"), new_key(home / "keys.json", "monitor")
        console.print("Postgres, MLflow, Prefect and a worker start ...")
        given = running.enter_context(stack(home, home / "keys.json"))
        console.print(f"MLflow is at {given.mlflow}, Prefect at {given.prefect.url}", markup=False)
        scheduled = {system: given.schedule(system) for system in SYSTEMS}
        for system in SYSTEMS:
            console.print(f"the flow of {system} trains its first release, by its schedule ...")
            given.await_scheduled(system, scheduled[system], TRAINED)
            address = running.enter_context(given.endpoint(system))
            console.print(f"{system} is at {address}", markup=False)
        targets = {system: address.removeprefix("http://") for system, address in given.services.items()}
        try:
            door = running.enter_context(proxy(home / "proxy", targets, given.certificate))
            path = given.certificate.path
            console.print(f"the proxy is at {door.url} (curl --cacert {path} ...)", markup=False)
            server = running.enter_context(prometheus(given.project, home / "prometheus", targets, monitor))
            console.print(f"Prometheus is at {server.url}", markup=False)
        except Skipped as error:
            console.print(str(error), markup=False)
        console.print(f"A client sends the header: authorization: Bearer {client}", markup=False)
        console.print("Ctrl-C ends it all.")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 all well, 1 a target is missed or something failed, 3 nothing was measured."""
    parser = argparse.ArgumentParser(prog="python -m qa.stack", description=__doc__)
    parser.add_argument("--test", action="store_true", help="test the stack, print the targets, and end")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of the test, such as whole (default: all)")
    options = parser.parse_args(arguments)
    if options.parts and not options.test:
        parser.error("parts are those of --test")
    try:
        return harness.run("stack", PARTS, True, options.parts) if options.test else look()
    except PliantError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
