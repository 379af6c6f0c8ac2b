"""Runs stages of the acceptance kit one after the other, each in a process of its own with a time limit.

A stage that crashes or runs over its limit is reported as such, with what it had measured by then, and the others go on.
"""

from __future__ import annotations

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

from pliant.benchmarks.results import Target, commit, read, write

LIMITS: Mapping[str, float] = {"right": 320.0, "tokens": 240.0, "packing": 570.0, "bins": 570.0, "cascade": 300.0}
"""The stages in their order, and the seconds that each may take; `right` and `tokens` together fit one call."""
PACKAGES = ("torch", "transformers", "timm", "numpy", "scipy", "onnxruntime")
MEASURED = "measured"


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


def run_stage(stage: str, device: str, tiny: bool, limit: float) -> Outcome:
    """Run a stage in a process of its own, and end it with all that it has started when `limit` seconds have passed."""
    start = time.monotonic()
    with TemporaryDirectory(prefix="pliant-gpu-") as folder:
        environment = {"HF_HUB_OFFLINE": "1", **os.environ}  # no waiting for a hub that cannot be reached
        process = subprocess.Popen(command(stage, device, tiny, folder), start_new_session=True, env=environment)
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        seconds = time.monotonic() - start
        content = _content(Path(folder) / f"{stage}.json")
    return Outcome(
        stage,
        _outcome(status, limit, content.get("error", "")),
        seconds,
        tuple(map(_target, content.get("targets", ()))),
        content.get("parts", {}),
    )


def command(stage: str, device: str, tiny: bool, folder: str) -> list[str]:
    """Return the command that runs a stage, which writes `<folder>/<stage>.json`."""
    words = [sys.executable, "-m", "pliant.benchmarks.gpu.stage", stage, "--device", device, "--out", folder]
    return words + ["--tiny"] * tiny


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a stage's process and whatever is left of its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(status: int | None, limit: float, error: str) -> str:
    if status is None:
        return f"ran over its limit of {limit:g} s"
    if error:
        return error
    if status < 0:
        return f"crashed: {signal.Signals(-status).name}"
    return MEASURED if status == 0 else f"crashed: exit status {status}"


def _content(path: Path) -> dict[str, Any]:
    """Return what a file of results holds; empty where there is none, or something else."""
    try:
        return read(path) if path.exists() else {}
    except ValueError:
        return {}


def _target(row: Mapping[str, Any]) -> Target:
    measured = float("nan") if row["measured"] is None else float(row["measured"])
    return Target(row["name"], measured, row["sense"], row["limit"], row["unit"])


def save(path: Path, outcome: Outcome, device: str, tiny: bool, revision: str = "") -> None:
    """Add what a stage measured to a JSON file, from which nothing is ever removed.

    Stages of the same commit, device and setting stand in it beside each other. What was measured in others, and a stage
    that has run again, go under "earlier", with their dates. A file that cannot be read is set aside.

    `revision`: the commit, where this folder is no checkout of git.
    """
    setting = {"commit": revision or commit(), "device": device_name(device), "setting": "tiny" if tiny else "full"}
    former = _content(path)
    if path.exists() and not former:
        path.replace(path.with_suffix(".unreadable"))
    stages, earlier = dict(former.get("stages", {})), list(former.get("earlier", ()))
    same = all(former.get(key) == value for key, value in setting.items())
    for stage in [stage for stage in stages if not same or stage == outcome.stage]:
        known = {key: former.get(key) for key in (*setting, "software")}
        targets = [row for row in former["targets"] if _stage(row) == stage]
        earlier.append({**known, "stage": stage, **stages.pop(stage), "targets": targets})
    rows = [_target(row) for row in former.get("targets", ()) if _stage(row) in stages] + named(outcome)
    stages[outcome.stage] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "outcome": outcome.outcome,
        "seconds": outcome.seconds,
        "parts": outcome.parts,
    }
    write(path.parent, path.stem, rows, {**setting, "software": software(), "stages": stages, "earlier": earlier})


def _stage(row: Mapping[str, Any]) -> str:
    """Return the stage that a target is of."""
    return str(row["name"]).split(":")[0]


def named(outcome: Outcome) -> list[Target]:
    """Return the targets of a stage with its name in front of theirs."""
    return [
        Target(f"{outcome.stage}: {target.name}", target.measured, target.sense, target.limit, target.unit)
        for target in outcome.targets
    ]


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a line a target and a line a stage that did not come to its end, as plain text."""
    targets = [target for outcome in outcomes for target in named(outcome)]
    rows = [
        (
            target.name,
            f"{target.measured:,.4g} {target.unit}".strip(),
            f"{target.sense} {target.limit:g} {target.unit}".strip(),
            target.verdict,
        )
        for target in targets
    ]
    rows = [("target", "measured", "limit", ""), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [
        f"{outcome.stage}: not measured to its end: {outcome.outcome}" for outcome in outcomes if not outcome.complete
    ]
    return "\n".join(lines)


def device_name(device: str) -> str:
    """Return the class of device. Raises `InputError` for a device that this machine lacks."""
    from pliant.benchmarks.gpu.stage import THREADS
    from pliant.device import device_class, threads  # imports torch

    with threads(THREADS):
        return device_class(device)


def software() -> dict[str, str]:
    """Return the versions of the packages that matter, those that are installed, and of CUDA."""
    import torch

    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions | {"cuda": str(torch.version.cuda or "none"), "cores": str(os.cpu_count())}
