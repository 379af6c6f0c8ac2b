"""The stage `right`: does it run, and is it right? The tests of qa/gpu on the device, with their verdicts as targets.

Among them are a capture that fails, a lack of memory, and the kill of each kind of device process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
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


def measure(device: str, tiny: bool, add: Add) -> None:
    """Run the tests of this device. Tiny: of device processes those of tokens alone."""
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise PliantError(f"the tests need {', '.join(lacking)}: carry the wheels (see --help)")
    here = "gpu" if device == "cuda" else "not gpu"
    runs = verdicts([TESTS, "-m", f"{here} and not slow"])
    add("runs", _targets("tests", runs), _summary(runs))
    processes = verdicts([PROCESSES, "-m", here, *(["-k", "tokens"] if tiny else [])])
    add("processes", _targets("tests of device processes", processes), _summary(processes))
    forced = []
    for what, word in FORCED.items():
        ran = [how == "passed" for name, how in (runs | processes).items() if word in name and how != "skipped"]
        share = sum(ran) / len(ran) if ran else float("nan")  # which misses
        forced.append(Target(f"share of the tests of {what} that pass", share, ">=", 1.0))
    add("forced", forced, {})


def verdicts(arguments: Sequence[str]) -> dict[str, str]:
    """Run pytest in a process of its own, its output beside ours; return test -> passed, failed or skipped.

    A pytest that crashes, and a module that cannot be imported, count as a test that failed.
    """
    with TemporaryDirectory(prefix="pliant-right-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", f"--junitxml={report}"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *arguments], check=False)
        if not report.exists():
            return {"pytest": "failed"}
        tests = {}
        for element in ElementTree.parse(report).iter("testcase"):
            bad = element.find("failure") is not None or element.find("error") is not None
            skipped = element.find("skipped") is not None
            name = f"{element.get('classname', '')}::{element.get('name', '')}"
            tests[name] = "failed" if bad else "skipped" if skipped else "passed"
        return tests


def _targets(what: str, tests: Mapping[str, str]) -> list[Target]:
    """Return the targets that some tests passed and none failed."""
    passed, failed = (list(tests.values()).count(verdict) for verdict in ("passed", "failed"))
    return [Target(f"{what} that pass", passed, ">=", 1), Target(f"{what} that fail", failed, "<=", 0)]


def _summary(tests: Mapping[str, str]) -> dict[str, Any]:
    counts = {verdict: list(tests.values()).count(verdict) for verdict in ("passed", "failed", "skipped")}
    return counts | {"not passed": {name: verdict for name, verdict in tests.items() if verdict != "passed"}}
