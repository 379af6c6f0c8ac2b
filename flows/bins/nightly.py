"""What runs at night of bins, and what such a run adds to a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.watch.nightly import Nightly

NAMING = ("streams", "data", "encoder")
"""Keys of a configuration that say which streams are trained."""

FLOWS = (
    Nightly(
        "bins",
        "flows.bins.flow.bins",
        "0 5 * * *",
        "Trains, compiles, profiles and promotes the bins system, stream by stream, and adapts the bins to what the journal "
        "of a service says was asked (without one: to the texts of the data). Measures nothing where nothing changed.",
    ),
)


def beneath(values: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return what a nightly run adds to a configuration's values where these say nothing of it: the lengths of requests."""
    streams = values.get("streams", ())
    if "lengths" in values or any(isinstance(stream, Mapping) and "lengths" in stream for stream in streams):
        return {}
    return {"lengths": [f"journal:{home / 'journals' / 'bins.jsonl'}", "data"]}
