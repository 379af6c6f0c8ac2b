"""The stage `right`: does it run, and is it right? The tests of qa/gpu on the device, with their verdicts as targets.

Among them are a capture that fails, a lack of memory, and the kill of each kind of device process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from pliant.benchmarks.results import Add, Target
from pliant.errors import PliantError

TESTS = "qa/gpu"
PROCESSES = f"{TESTS}/test_processes.py"
NEEDED = ("pytest", "hypothesis", "cattrs")
FORCED = {
    "a capture that fails": "capture_that_failed",
    "a lack of memory": "_lack_of_memory_",
    "the kill of a process": "_killed_",
}
"""What is forced to happen, and what the tests of it have in their names."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test that ran: its name, and how it ended (passed, failed or skipped)."""

    name: str
    verdict: str
    reason: str = ""


def measure(device: str, tiny: bool, add: Add) -> None:
    """Run the tests of this device. Tiny: of device processes those of tokens alone."""
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise PliantError(f"the tests need {', '.join(lacking)}: carry the wheels (see --help)")
    here = "gpu" if device == "cuda" else "not gpu"
    cases = pytest([TESTS, "-m", f"{here} and not slow"])
    add("runs", verdicts("tests", cases), summary(cases))
    processes = pytest([PROCESSES, "-m", here, *(["-k", "tokens"] if tiny else [])])
    add("processes", verdicts("tests of device processes", processes), summary(processes))
    cases += processes
    add("forced", [_forced(what, word, cases) for what, word in FORCED.items()], {})


def pytest(arguments: Sequence[str]) -> list[Case]:
    """Run pytest in a process of its own, its output beside ours; return the tests that it ran.

    A pytest that crashes counts as a test that failed.
    """
    with TemporaryDirectory(prefix="pliant-right-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        status = subprocess.run(command, check=False).returncode
        if not report.exists():
            return [Case("pytest", "failed", f"it ended with status {status} and wrote no report")]
        return cases_of(report.read_text(encoding="utf-8"))


def cases_of(xml: str) -> list[Case]:
    """Return the tests in a report of pytest's in JUnit's format. A module that cannot be imported is a failed test."""
    return [_case(element) for element in ElementTree.fromstring(xml).iter("testcase")]


def _case(element: ElementTree.Element) -> Case:
    name = f"{element.get('classname', '')}::{element.get('name', '')}"
    for tag, verdict in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (inner := element.find(tag)) is not None:
            return Case(name, verdict, (inner.get("message") or "").splitlines()[0] if inner.get("message") else "")
    return Case(name, "passed")


def verdicts(what: str, cases: Sequence[Case]) -> list[Target]:
    """Return the targets that some tests passed and none failed."""
    passed, failed = (sum(case.verdict == verdict for case in cases) for verdict in ("passed", "failed"))
    return [Target(f"{what} that pass", passed, ">=", 1), Target(f"{what} that fail", failed, "<=", 0)]


def summary(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the counts, and the names and reasons of tests that failed or were skipped."""
    counts = {verdict: sum(case.verdict == verdict for case in cases) for verdict in ("passed", "failed", "skipped")}
    others = [{"test": case.name, "verdict": case.verdict, "reason": case.reason[:200]} for case in cases]
    return counts | {"not passed": [row for row in others if row["verdict"] != "passed"]}


def _forced(what: str, word: str, cases: Sequence[Case]) -> Target:
    """Return the share of the tests of something forced that passed; a figure that misses where none ran."""
    ran = [case.verdict == "passed" for case in cases if word in case.name and case.verdict != "skipped"]
    share = sum(ran) / len(ran) if ran else float("nan")
    return Target(f"share of the tests of {what} that pass", share, ">=", 1.0)
