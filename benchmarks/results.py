"""Targets: what is demanded, what was measured, and whether the target is met. Writes results as compact JSON.

Equal rows (dicts with the same keys) are written as columns and rows, and figures with four digits: the tables are kept in
the repository, every sample is not.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Target:
    """`measured` must be at least or at most `limit`. A figure that could not be measured (NaN) misses."""

    name: str
    measured: float
    sense: Literal[">=", "<="]
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.sense == ">=" else self.measured <= self.limit

    @property
    def verdict(self) -> str:
        return "met" if self.met else "missed"


Add = Callable[[str, Sequence[Target], Mapping[str, Any]], None]
"""Takes what a part of a stage has measured: its name, its targets, and the details (benchmarks/gpu/stage.py)."""


def exit_status(targets: Sequence[Target]) -> int:
    """Return 0 if every target is met, else 1."""
    return 0 if all(target.met for target in targets) else 1


def write(folder: Path, name: str, targets: Sequence[Target], details: Mapping[str, Any]) -> Path:
    """Write one JSON file with the targets, what was measured, and on what; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "targets": [{**asdict(target), "verdict": target.verdict} for target in targets],
        "machine": {"system": platform.system(), "machine": platform.machine(), "python": platform.python_version()},
        "commit": commit(),
        "date": date.today().isoformat(),
        **details,
    }
    path = folder / f"{name}.json"
    # One line a top-level key: small, and still to be read in a difference.
    lines = [
        f"{json.dumps(str(key))}: {json.dumps(_compact(value), separators=(',', ':'))}"
        for key, value in content.items()
    ]
    partial = path.with_suffix(".partial")
    partial.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    partial.replace(path)  # a process that is killed meanwhile leaves the former file whole
    return path


def read(path: Path) -> dict[str, Any]:
    """Return what `write` has written, with rows as dicts again."""
    content: dict[str, Any] = _whole(json.loads(path.read_text(encoding="utf-8")))
    return content


def targets_of(content: Mapping[str, Any]) -> tuple[Target, ...]:
    """Return the targets of what `write` has written."""
    names = [each.name for each in fields(Target)]
    rows = [{name: row[name] for name in names} for row in content.get("targets", ())]
    return tuple(Target(**row | ({} if row["measured"] is not None else {"measured": math.nan})) for row in rows)


def commit() -> str:
    """Return the commit, with "-dirty" where the tree differs from it, but for results such as this one.

    It is "unknown" where this is no checkout, or git is missing.
    """
    revision = git("rev-parse", "--short", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results")
    return (revision or "unknown") + ("-dirty" if changed else "")


def git(*words: str) -> str:
    """Return what git says; empty where it is missing, or this is no checkout."""
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def _compact(value: Any) -> Any:
    """Return the value as JSON has it, which knows neither NaN nor numpy's numbers."""
    match value:
        case dict():
            return {str(key): _compact(item) for key, item in value.items()}
        case list() | tuple():
            items = [_compact(item) for item in value]
            if len(items) > 1 and isinstance(items[0], dict) and items[0]:
                keys = list(items[0])
                if all(isinstance(item, dict) and list(item) == keys for item in items):
                    return {"columns": keys, "rows": [list(item.values()) for item in items]}
            return items
        case bool():
            return value
        case float() | np.floating():
            return float(f"{float(value):.4g}") if math.isfinite(value) else None
        case np.integer():
            return int(value)
    return value


def _whole(value: Any) -> Any:
    match value:
        case {"columns": list(columns), "rows": list(rows), **others} if not others:
            return [dict(zip(columns, map(_whole, row), strict=True)) for row in rows]
        case dict():
            return {key: _whole(item) for key, item in value.items()}
        case list():
            return [_whole(item) for item in value]
    return value
