"""`python -m pliant.benchmarks.gpu`: the acceptance kit of a GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.benchmarks.gpu.run import LIMITS, Outcome, named, run_stage, save, table
from pliant.benchmarks.results import exit_status
from pliant.errors import PliantError

INCOMPLETE = 3
"""Exit status where every measured target is met, but a stage was not measured to its end, or nothing was measured."""

HOW = f"""
Stages, in this order, and the seconds that each may take:
{chr(10).join(f"  {stage:<8} {limit:4.0f}" for stage, limit in LIMITS.items())}

Where a machine is lent for calls of ten minutes, four calls measure everything:
  python -m pliant.benchmarks.gpu right tokens --out OUT.json
  python -m pliant.benchmarks.gpu packing --out OUT.json
  python -m pliant.benchmarks.gpu bins --out OUT.json
  python -m pliant.benchmarks.gpu cascade --out OUT.json
Each adds its stages to the file. What other commits, devices and settings measured, and a stage that runs again, stay in
it under "earlier".

It needs torch, timm, transformers, scipy, pytest, hypothesis and cattrs (with attrs). What a machine without a package
index lacks of these can be carried as wheels: install them into a folder and name it in PYTHONPATH.

Exit status: 0 every target is met, 1 a target is missed, 3 nothing was measured or a stage did not come to its end.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages that are named (all without names), print a table, write the file and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pliant.benchmarks.gpu",
        description="Measure what runs on this machine's GPU, whether it is right, and how fast it is.",
        epilog=HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(LIMITS)}; all if left out")
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu"), help="the default is cuda: the first GPU that is visible"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="tiny models and few repetitions: shows that all of it runs"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu.json"), help="the JSON file")
    parser.add_argument("--commit", default="", help="the commit, where this folder is no checkout of git")
    options = parser.parse_args(arguments)
    if unknown := [stage for stage in options.stages if stage not in LIMITS]:
        parser.error(f"{unknown[0]} is no stage: name some of {', '.join(LIMITS)}")
    if reason := missing(options.device):
        print(f"Nothing was measured: {reason}", file=sys.stderr)
        return INCOMPLETE
    outcomes: list[Outcome] = []
    for stage in [stage for stage in LIMITS if not options.stages or stage in options.stages]:
        print(f"--- {stage} ---", flush=True)
        outcomes.append(run_stage(stage, options.device, options.tiny, LIMITS[stage]))
        save(options.out, outcomes[-1], options.device, options.tiny, options.commit)
    print(table(outcomes))
    print(f"Written to {options.out}")
    return status(outcomes)


def status(outcomes: Sequence[Outcome]) -> int:
    """Return 1 if a target is missed, 3 if nothing was measured or a stage did not come to its end, else 0."""
    targets = [target for outcome in outcomes for target in named(outcome)]
    complete = bool(targets) and all(outcome.complete for outcome in outcomes)
    return exit_status(targets) or (0 if complete else INCOMPLETE)


def missing(device: str) -> str:
    """Return why this device cannot be measured; empty if it can."""
    from pliant.benchmarks.gpu.run import device_name

    try:
        device_name(device)
    except PliantError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
