"""What came of the clients: a row each, a table of all, and the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
HEADINGS = ("client", "version", "against", "what it did", "result", "steps", "seconds")
WIDTH = 72  # characters of what a client did


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a client. `ok`: None for a step that is left out, with the reason in `detail`."""

    did: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Row:
    """A client against a system. `reason`: why it was not run, or why it failed besides its steps; else empty."""

    client: str
    version: str
    system: str
    steps: tuple[Step, ...]
    reason: str = ""
    installed: bool = True
    seconds: float = 0.0

    @property
    def result(self) -> str:
        if not self.installed:
            return NOT_RUN
        taken = [step for step in self.steps if step.ok is not None]
        return PASSED if taken and not self.reason and all(step.ok for step in taken) else FAILED

    def cells(self) -> tuple[str, ...]:
        taken = [step for step in self.steps if step.ok is not None]
        did = "; ".join(step.did for step in taken) or self.reason
        shown = did if len(did) <= WIDTH else f"{did[: WIDTH - 3]}..."
        steps = f"{sum(step.ok is True for step in taken)} of {len(taken)}"
        return self.client, self.version or "-", self.system, shown, self.result, steps, f"{self.seconds:.0f}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "result": self.result}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table, and below it what failed, what was not run and what was left out."""
    cells = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(each, widths, strict=True)).rstrip() for each in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for row in rows:
        name = f"{row.client} against {row.system}"
        lines += [f"{name}: {row.result}: {row.reason}"] if row.reason else []
        lines += [f"{name}: {FAILED}: {step.did}: {step.detail}" for step in row.steps if step.ok is False]
        lines += [f"{name}: left out: {step.did}: {step.detail}" for step in row.steps if step.ok is None]
    return "\n".join(lines) + "\n"


def status(rows: Sequence[Row]) -> int:
    """Return the exit status: 1 if a client failed, or if none was run."""
    results = [row.result for row in rows]
    return int(FAILED in results or PASSED not in results)
