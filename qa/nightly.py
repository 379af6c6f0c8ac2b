"""What a night runs: the fast tests in a random order with fresh examples, then all of qa; a line on each at the end.

    python -m qa.nightly [--seed 7] [--minutes 2] [--only "attacks chaos"]

The seed draws the examples, the order and the faults again. What fails does not keep the rest from running. The exit status
is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pliant.benchmarks.harness import Skipped
from qa.stack.servers import PACKAGES, program
from tests.fixtures.places import ROOT

PYTEST = ("pytest", "-p", "no:cacheprovider")
FAULTS = "qa/stack/test_faults_database.py"  # a part of the stack
NOTHING_MEASURED = 3  # exit status of benches


@dataclass(frozen=True)
class Step:
    """A module of Python to run with arguments. `programs`: what has to be installed for it."""

    module: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: Sequence[str] = ()


def steps(seed: int, minutes: float) -> Mapping[str, Step]:
    """Return all steps in order; the quickest come first. `minutes`: of chaos, for each system."""
    order = ("--shuffle", str(seed), f"--hypothesis-seed={seed}", "-m", "not slow")
    processes = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
    chaos = {"PLIANT_CHAOS_MINUTES": f"{minutes:g}", "PLIANT_CHAOS_SEED": str(seed)}
    return {
        "fast": Step((*PYTEST, "tests", *processes, *order), {"PLIANT_TEST_EXAMPLES": "fresh"}),
        "gpu": Step((*PYTEST, "qa/gpu", "qa/test_gpu_kit.py")),
        "flows": Step((*PYTEST, "qa/flows")),
        "tools": Step((*PYTEST, "qa/conformance", "qa/stack", "--deselect", FAULTS)),
        "attacks": Step((*PYTEST, "-s", "qa/attacks")),
        "conformance": Step(("qa.conformance.run",)),
        "chaos": Step((*PYTEST, "-s", "qa/chaos"), chaos),
        "stack": Step(("qa.stack", "--test"), programs=tuple(PACKAGES)),
    }


def run(step: Step) -> str:
    """Run a step, its output beside ours; return what came of it."""
    try:
        for name in step.programs:
            program(name)
    except Skipped as error:
        return f"skipped: {error}"
    status = subprocess.run(
        [sys.executable, "-m", *step.module], cwd=ROOT, env={**os.environ, **step.variables}
    ).returncode
    if status == NOTHING_MEASURED and step.module[0] != "pytest":
        return "skipped: nothing could be measured here"
    return "passed" if status == 0 else f"failed with status {status}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m qa.nightly", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(datetime.now().strftime("%Y%m%d")))
    parser.add_argument("--minutes", type=float, default=2.0, help="of chaos, for each system")
    parser.add_argument("--only", default="", help="steps to run, by name")
    options = parser.parse_args(arguments)
    known = steps(options.seed, options.minutes)
    if unknown := set(options.only.split()) - set(known):
        parser.error(f"steps are {', '.join(known)}, not {', '.join(sorted(unknown))}")
    print(f"the seed of this night is {options.seed}", flush=True)
    results = {}
    for name in options.only.split() or known:
        print(f"\n=== {name}", flush=True)
        began = time.monotonic()
        results[name] = f"{run(known[name])} ({(time.monotonic() - began) / 60:.1f} min)"
    print("\n" + "\n".join(f"{name:<12} {result}" for name, result in results.items()))
    return int(any(result.startswith("failed") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
