"""Bars: what an issue demands, what was measured, and whether it holds. Writes results as JSON."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Bar:
    """`measured` must be at least or at most `limit`. A figure that could not be measured (NaN) falls short."""

    name: str
    measured: float
    sense: Literal[">=", "<="]
    limit: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        return self.measured >= self.limit if self.sense == ">=" else self.measured <= self.limit

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "falls short"


def exit_status(bars: Sequence[Bar]) -> int:
    """0 if every bar holds, else 1."""
    return 0 if all(bar.holds for bar in bars) else 1


def write(folder: Path, name: str, bars: Sequence[Bar], details: Mapping[str, Any]) -> Path:
    """One JSON file with the bars, everything measured, and what it was measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "bars": [{**asdict(bar), "verdict": bar.verdict} for bar in bars],
        "machine": {"system": platform.system(), "machine": platform.machine(), "python": platform.python_version()},
        "commit": _commit(),
        **details,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(_plain(content), indent=1) + "\n")
    return path


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _plain(value: Any) -> Any:
    """JSON knows neither NaN nor numpy's numbers."""
    match value:
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case float() | np.floating():
            return round(float(value), 6) if math.isfinite(value) else None
        case np.integer():
            return int(value)
    return value
