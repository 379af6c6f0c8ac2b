"""`python -m pliant.benchmarks.gpu`: the acceptance kit of a GPU.

Runs stages one after the other, each in a process of its own with a time limit (stage.py). A stage that crashes or runs over
its limit is reported as such, with what it had measured by then, and the others go on.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pliant.benchmarks.results import Target, commit, exit_status, read, targets_of, write
from pliant.errors import PliantError

LIMITS: Mapping[str, float] = {"right": 320.0, "tokens": 240.0, "packing": 570.0, "bins": 570.0, "cascade": 300.0}
"""The stages in their order, and the seconds that each may take; `right` and `tokens` together fit one call."""
PACKAGES = ("torch", "transformers", "timm", "numpy", "scipy", "onnxruntime")
MEASURED = "measured"
INCOMPLETE = 3
"""Exit status where every measured target is met, but a stage was not measured to its end, or nothing was measured."""

HOW = f"""
Stages, in this order, and the seconds that each may take:
{chr(10).join(f"  {stage:<8} {limit:4.0f}" for stage, limit in LIMITS.items())}

Stages of the same commit, device and setting stand beside each other in the file, so where a machine is lent for calls of
ten minutes, four calls measure everything: `right tokens`, `packing`, `bins` and `cascade`.

It needs torch, timm, transformers, scipy, pytest, hypothesis and cattrs (with attrs). What a machine without a package
index lacks of these can be carried as wheels: install them into a folder and name it in PYTHONPATH.

Exit status: 0 every target is met, 1 a target is missed, 3 nothing was measured or a stage did not come to its end.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a stage ended: `outcome` is "measured", or says what went wrong."""

    stage: str
    outcome: str
    seconds: float
    targets: tuple[Target, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.outcome == MEASURED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages that are named (all without names), print their targets, write the file and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pliant.benchmarks.gpu",
        description="Measure what runs on this machine's GPU, whether it is right, and how fast it is.",
        epilog=HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("stages", nargs="*", metavar="STAGE", help=f"{', '.join(LIMITS)}; all if left out")
    add("--device", default="cuda", choices=("cuda", "cpu"), help="the default is cuda: the first GPU that is visible")
    add("--tiny", action="store_true", help="tiny models and few repetitions: shows that all of it runs")
    add("--out", type=Path, default=Path("benchmarks/results/gpu.json"), help="the JSON file")
    add("--commit", default="", help="the commit, where this folder is no checkout of git")
    options = parser.parse_args(arguments)
    if unknown := [stage for stage in options.stages if stage not in LIMITS]:
        parser.error(f"{unknown[0]} is no stage: name some of {', '.join(LIMITS)}")
    from pliant.benchmarks.gpu.stage import THREADS
    from pliant.device import device_class, threads  # imports torch

    try:
        with threads(THREADS):
            device = device_class(options.device)
    except PliantError as error:
        print(f"Nothing was measured: {error}", file=sys.stderr)
        return INCOMPLETE
    setting = {"commit": options.commit or commit(), "device": device, "setting": "tiny" if options.tiny else "full"}
    outcomes: list[Outcome] = []
    for stage in [stage for stage in LIMITS if not options.stages or stage in options.stages]:
        print(f"--- {stage} ---", flush=True)
        outcomes.append(run_stage(stage, options.device, options.tiny, LIMITS[stage]))
        save(options.out, outcomes[-1], setting)
        for target in outcomes[-1].targets:
            print(
                f"{target.name}: {target.measured:,.4g} {target.unit} {target.sense} {target.limit:g} ({target.verdict})"
            )
        if not outcomes[-1].complete:
            print(f"{stage}: not measured to its end: {outcomes[-1].outcome}")
    print(f"Written to {options.out}")
    return status(outcomes)


def status(outcomes: Sequence[Outcome]) -> int:
    """Return 1 if a target is missed, 3 if nothing was measured or a stage did not come to its end, else 0."""
    targets = [target for outcome in outcomes for target in outcome.targets]
    complete = bool(targets) and all(outcome.complete for outcome in outcomes)
    return exit_status(targets) or (0 if complete else INCOMPLETE)


def run_stage(stage: str, device: str, tiny: bool, limit: float) -> Outcome:
    """Run a stage in a process of its own, and end it with all that it has started when `limit` seconds have passed."""
    start = time.monotonic()
    with TemporaryDirectory(prefix="pliant-gpu-") as folder:
        environment = {"HF_HUB_OFFLINE": "1", **os.environ}  # no waiting for a hub that cannot be reached
        process = subprocess.Popen(command(stage, device, tiny, folder), start_new_session=True, env=environment)
        try:
            ended: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # and whatever is left of its session
            process.wait()
        seconds, content = time.monotonic() - start, _content(Path(folder) / f"{stage}.json")
    how = MEASURED if ended == 0 else f"crashed: exit status {ended}"
    if ended is None:
        how = f"ran over its limit of {limit:g} s"
    elif content.get("error"):
        how = content["error"]
    elif ended < 0:
        how = f"crashed: {signal.Signals(-ended).name}"
    return Outcome(stage, how, seconds, targets_of(content), content.get("parts", {}))


def command(stage: str, device: str, tiny: bool, folder: str) -> list[str]:
    """Return the command that runs a stage, which writes `<folder>/<stage>.json`."""
    words = [sys.executable, "-m", "pliant.benchmarks.gpu.stage", stage, "--device", device, "--out", folder]
    return words + ["--tiny"] * tiny


def _content(path: Path) -> dict[str, Any]:
    """Return what a file of results holds; empty where there is none, or something else."""
    try:
        return read(path) if path.exists() else {}
    except ValueError:
        return {}


def save(path: Path, outcome: Outcome, setting: Mapping[str, str]) -> None:
    """Write what a stage measured to a JSON file, in which other stages of the same commit, device and setting stay."""
    former = _content(path)
    if any(former.get(key) != value for key, value in setting.items()):
        former = {}
    others = {name: stage for name, stage in former.get("stages", {}).items() if name != outcome.stage}
    kept = [target for target in targets_of(former) if target.name.split(":")[0] in others]
    stage = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "outcome": outcome.outcome,
        "seconds": outcome.seconds,
        "parts": outcome.parts,
    }
    details = {**setting, "software": software(), "stages": {**others, outcome.stage: stage}}
    write(path.parent, path.stem, [*kept, *outcome.targets], details)


def software() -> dict[str, str]:
    """Return the versions of the packages that matter, those that are installed, and of CUDA."""
    import torch

    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions | {"cuda": str(torch.version.cuda or "none"), "cores": str(os.cpu_count())}


if __name__ == "__main__":
    sys.exit(main())
