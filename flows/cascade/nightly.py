"""What runs at night of the cascade, and what such a run adds to a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.watch.nightly import Nightly

NAMING = ("tasks", "data")
"""Keys of a configuration that say which tasks are trained."""

FLOWS = (
    Nightly(
        "cascade",
        "flows.cascade.flow.cascade",
        "0 4 * * *",
        "Retrains, profiles, plans and promotes the cascade system, task by task, also from labels that clients reported; "
        "trains nothing where nothing changed.",
    ),
)


def beneath(values: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return what a nightly run adds to a configuration's values where these say nothing of it: labels to learn from."""
    return {} if "feedback" in values else {"feedback": {"outcomes": str(home / "outcomes" / "cascade")}}
