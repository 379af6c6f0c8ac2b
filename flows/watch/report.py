"""The drift report on the page of a triggered run: what was noticed, as Markdown, from what a service has written down.

A service keeps the state of its watch in `PLIANT_HOME/watch/SYSTEM.json`. Here only its key `alarms` is read, leniently: a
list of `{"stream", "sentence", "reference", "present", "evidence", "at", "observations"}`, of which any may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS: Mapping[str, str] = {
    "stream": "stream",
    "reference": "reference",
    "present": "present",
    "evidence": "evidence",
    "at": "since",
    "observations": "observations",
    "sentence": "what was noticed",
}
"""Key of an alarm -> heading of its column; a column that no alarm fills is left out."""
MOST_ALARMS, MOST_CHARACTERS = 50, 300


def state_file(home: Path, system: str) -> Path:
    """Return where a system's service keeps the state of its watch."""
    return home / "watch" / f"{system}.json"


def read_alarms(path: Path) -> list[Mapping[str, Any]]:
    """Return the alarms of a watch's state, the first `MOST_ALARMS`; empty where the file is missing or is none."""
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    alarms = state.get("alarms") if isinstance(state, Mapping) else None
    return [alarm for alarm in alarms if isinstance(alarm, Mapping)][:MOST_ALARMS] if isinstance(alarms, list) else []


def to_markdown(system: str, reason: str, alarms: Sequence[Mapping[str, Any]]) -> str:
    """Return the report: the reason, and a table of alarms where there are any."""
    lines = [f"# {system}: why this run was started", "", _text(reason)]
    columns = [key for key in COLUMNS if any(alarm.get(key) is not None for alarm in alarms)]
    if columns:
        lines += ["", _row(COLUMNS[key] for key in columns), _row("---" for _ in columns)]
        lines += [_row(_text(alarm.get(key)) for key in columns) for alarm in alarms]
    return "\n".join(lines)


def show(system: str, reason: str, home: Path) -> None:
    """Put the report on the page of the Prefect run, as the artifact `SYSTEM-drift`."""
    from prefect.artifacts import create_markdown_artifact

    text = to_markdown(system, reason, read_alarms(state_file(home, system)))
    create_markdown_artifact(text, key=f"{system}-drift", description="What was noticed, and why this run was started")


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: object) -> str:
    """Return a value as a cell of a table: one line of bounded length, without what Markdown or HTML would act on."""
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    for character, replacement in {"\\": "\\\\", "|": "\\|", "<": "&lt;", "`": "'", "[": "\\[", "!": "&#33;"}.items():
        text = text.replace(character, replacement)
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
