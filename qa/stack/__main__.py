"""`python -m qa.stack [--test] [PART...]`: run the stack for people to look at, or test it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from pliant import systems
from pliant.benchmarks import harness
from pliant.benchmarks.harness import Context, Measured, Skipped
from pliant.benchmarks.parts import Part
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import settings
from qa.stack.backup import backup
from qa.stack.changes import changes
from qa.stack.commands import deployed
from qa.stack.dashboards import dashboards
from qa.stack.servers import program, prometheus, proxy
from qa.stack.stack import stack, whole
from qa.targets import say
from tests.fixtures.places import ROOT


def tests(subject: str, path: str, programs: Sequence[str], _context: Context) -> Measured:
    """Run tests, which would be skipped without these programs."""
    for name in programs:
        program(name)
    done = subprocess.run([sys.executable, "-m", "pytest", path], check=False, cwd=ROOT)
    return [Target(f"tests of {subject} that fail", int(done.returncode != 0), "<=", 0)], {}


RULES, FAULTS = "tests/deploy/test_monitoring.py", "qa/stack/test_faults_database.py"
PARTS: Mapping[str, Part] = {
    "whole": Part("seconds from nothing to a whole stack that serves", whole, 300.0),
    "dashboards": Part("panels and alerts that show what happened", dashboards, 600.0),
    "backup": Part("what is lost where a back-up is restored", backup, 400.0),
    "rules": Part("what promtool says of the rules", partial(tests, "rules", RULES, ["promtool"]), 30.0),
    "faults": Part("Postgres taken away", partial(tests, "faults", FAULTS, ["initdb", "postgres"]), 500.0),
    "commands": Part("the pages' commands, one after the other", deployed, 900.0),
    **{
        f"changes-{name}": Part(f"planted changes in {name} that are learnt from", partial(changes, name), 600.0)
        for name in systems.names()
    },
}


def look() -> int:
    """Start everything, print the addresses, and wait. What was trained and recorded goes with the stack's Postgres."""
    home = settings.read().home / "stack"
    with ExitStack() as running:
        say("Postgres, MLflow, Prefect and a worker start ...")
        given = running.enter_context(stack(home))
        client, monitor = given.key("use"), given.key("monitor")
        say(f"MLflow is at {given.project.tracking_uri}, Prefect at {given.prefect.url}")
        say("the flows train their first releases, by their schedules ...")
        for system in given.scheduled():
            say(f"{system} is at {running.enter_context(given.endpoint(system))}")
        try:
            door = running.enter_context(proxy(home / "proxy", given.targets, given.certificate))
            say(f"the proxy is at {door.url} (curl --cacert {given.certificate.path} ...)")
            server = running.enter_context(prometheus(home, given.targets, monitor))
            say(f"Prometheus is at {server.url}")
        except Skipped as error:
            say(str(error))
        say(f"A client sends the header: authorization: Bearer {client}")
        say("Ctrl-C ends it all.")
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
