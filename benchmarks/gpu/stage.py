"""Runs one stage in this process, and writes what it measures part by part: what comes after a crash is lost, no more.

`run.py` starts it, with a time limit, as `python -m pliant.benchmarks.gpu.stage NAME --device cuda --out FOLDER`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pliant import systems
from pliant.benchmarks.results import Target, write
from pliant.device import threads
from pliant.errors import PliantError

THREADS = 1
"""Of torch on a CPU: as a service has, and steadier than all cores where others use them, too."""


class Report:
    """The targets and figures of a stage so far; each part is written at once, to `<folder>/<stage>.json`."""

    def __init__(self, folder: Path, stage: str) -> None:
        self._folder, self._stage = folder, stage
        self._targets: list[Target] = []
        self._parts: dict[str, Any] = {}
        self._error = ""
        self._write()

    def add(self, part: str, targets: Sequence[Target], details: Mapping[str, Any]) -> None:
        """Add what a part has measured, and print it."""
        self._targets += targets
        self._parts[part] = dict(details)
        for target in targets:
            print(f"{self._stage}: {target.name}: {target.measured:,.4g} {target.unit} ({target.verdict})", flush=True)
        self._write()

    def fail(self, reason: str) -> None:
        """Note why the stage ended before its end."""
        self._error = reason
        self._write()

    def _write(self) -> None:
        write(self._folder, self._stage, self._targets, {"parts": self._parts, "error": self._error})


def run(stage: str, device: str, tiny: bool, report: Report) -> bool:
    """Run a stage; return whether it came to its end. Whatever it raises is noted in the report."""
    try:
        measure = _module(stage).measure
        with threads(THREADS if device == "cpu" else None):
            measure(device, tiny, report.add)
    except PliantError as error:
        report.fail(str(error))
        return False
    except Exception as error:  # the boundary: other stages go on
        traceback.print_exc()
        report.fail(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        return False
    return True


def _module(stage: str) -> Any:
    if stage in systems.names():
        return systems.system(stage).part("benchmarks", "acceptance")
    return import_module(f"pliant.benchmarks.gpu.{stage}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one stage of the acceptance kit in this process.")
    parser.add_argument("stage")
    parser.add_argument("--device", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the stage's JSON")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    return 0 if run(options.stage, options.device, options.tiny, Report(options.out, options.stage)) else 1


if __name__ == "__main__":
    sys.exit(main())
