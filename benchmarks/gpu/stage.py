"""Runs one stage in this process, and writes what it measures part by part: what comes after a crash is lost, no more.

The kit starts it, with a time limit, as `python -m pliant.benchmarks.gpu.stage NAME --device cuda --out FOLDER`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pliant import systems
from pliant.benchmarks.results import Target, write
from pliant.device import threads
from pliant.errors import PliantError

THREADS = 1
"""Of torch on a CPU: as a service has, and steadier than all cores where others use them, too."""


def run(stage: str, device: str, tiny: bool, folder: Path) -> bool:
    """Run a stage; return whether it came to its end.

    `<folder>/<stage>.json` has its targets, under the stage's name, and figures so far, and what it raised, if anything.
    """
    targets, parts = list[Target](), dict[str, Any]()

    def add(part: str, measured: Sequence[Target], details: Mapping[str, Any], error: str = "") -> None:
        targets.extend(replace(target, name=f"{stage}: {target.name}") for target in measured)
        if part:
            parts[part] = dict(details)
        write(folder, stage, targets, {"parts": parts, "error": error})

    add("", [], {})
    try:
        with threads(THREADS if device == "cpu" else None):
            _module(stage).measure(device, tiny, add)
    except PliantError as error:
        add("", [], {}, str(error))
        return False
    except Exception as error:  # the boundary: other stages go on
        traceback.print_exc()
        add("", [], {}, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
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
    return 0 if run(options.stage, options.device, options.tiny, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
