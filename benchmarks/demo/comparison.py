"""What the demo of a system ends with: one figure, and whether Pliant is ahead by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Comparison:
    """`figure`: what is compared, with what; `ratio`: how many times as good Pliant was; `reason`: of one that is not ahead.

    The reason is a sentence: what may have decided instead of Pliant.
    """

    figure: str
    ratio: float
    reason: str

    @property
    def ahead(self) -> bool:
        """Whether Pliant was better; not where there was nothing to compare (NaN)."""
        return self.ratio > 1.0

    @property
    def said(self) -> str:
        """Return how it ended, in two words."""
        return "ahead" if self.ahead else "not ahead"


def conclude(console: Console, comparisons: Mapping[str, Comparison]) -> list[str]:
    """Print how each system's comparison ended, with a sentence for each that Pliant lost; return those systems."""
    table = Table("", "compared", "Pliant", "", title="How the comparisons ended")
    for system, comparison in comparisons.items():
        style = "" if comparison.ahead else "bold red"
        table.add_row(system, comparison.figure, f"{comparison.ratio:.2f}x", comparison.said, style=style)
    console.print(table)
    behind = [system for system, comparison in comparisons.items() if not comparison.ahead]
    for system in behind:
        lost = comparisons[system]
        console.print(
            f"[bold red]{system} is not ahead[/bold red]: {lost.ratio:.2f}x in {lost.figure}. {lost.reason} Other work on "
            f"this machine during a turn can do that, too: `pliant demo {system}` repeats it."
        )
    return behind
