"""Tables and pictures of a benchmark on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import Target


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts under headings."""
    printed = Table(*headings, title=title)
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)


def targets(measured: Sequence[Target]) -> None:
    """Print each target, what was measured, its limit, and whether it is met."""
    rows = Table("target", "measured", "limit", "")
    for target in measured:
        figure, limit = f"{target.measured:,.6g} {target.unit}", f"{target.sense} {target.limit:,g} {target.unit}"
        rows.add_row(target.name, figure, limit, f"[{'green' if target.met else 'red'}]{target.verdict}[/]")
    Console().print(rows)


def picture(figure: Any, folder: Path, name: str) -> None:
    """Save a figure in `folder` and print where it is."""
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=100)
    Console().print(f"Picture: {path}")
