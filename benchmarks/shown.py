"""Tables and pictures of a benchmark on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import Bar


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    made = Table(*headings, title=title)
    for row in rows:
        made.add_row(*row)
    Console().print(made)


def bars(found: Sequence[Bar]) -> None:
    made = Table("bar", "measured", "limit", "")
    for bar in found:
        measured, limit = f"{bar.measured:,.6g} {bar.unit}", f"{bar.sense} {bar.limit:,g} {bar.unit}"
        made.add_row(bar.name, measured, limit, f"[{'green' if bar.holds else 'red'}]{bar.verdict}[/]")
    Console().print(made)


def picture(figure: Any, folder: Path, name: str) -> None:
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=100)
    Console().print(f"Picture: {path}")
