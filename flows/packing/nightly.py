"""What runs at night of packing: the flow, and later the one that learns from what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.watch.nightly import Nightly

NAMING = ("name", "generator", "prompts", "data")
"""Keys of a configuration that say which model is trained."""

FLOWS = (
    Nightly(
        "packing",
        "flows.packing.flow.packing",
        "0 6 * * *",
        "Trains, observes, profiles, plans and promotes the packing system's generator and its length predictor; trains and "
        "measures nothing where nothing changed.",
        alarmed=False,
    ),
    Nightly(
        "packing-retrain",
        "flows.packing.retrain.packing_retrain",
        "0 7 * * *",
        "Trains the champion's length predictor further on the outputs that a service observed (it writes them where it is "
        "told to); promoted only through the gate. Releases nothing where too few were observed: after an alarm the packing "
        "flow follows then.",
    ),
)


def beneath(values: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return what a nightly run adds to a configuration's values: nothing."""
    del values, home
    return {}
