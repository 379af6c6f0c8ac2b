"""What runs at night of tokens, and what such a run adds to a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.watch.nightly import Nightly

NAMING = ("data",)
"""Keys of a configuration that say which tasks are trained."""

FLOWS = (
    Nightly(
        "tokens",
        "flows.tokens.flow.tokens",
        "0 3 * * *",
        "Retrains, profiles and promotes the tokens system, also from pictures whose classes clients of a service reported "
        '(docs/tokens.md, "Learning from labels"); trains nothing where nothing changed.',
    ),
)


def beneath(values: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return what a nightly run adds to a configuration's values where these say nothing of it: labels to learn from."""
    return {} if "feedback" in values else {"feedback": {"outcomes": str(home / "outcomes" / "tokens")}}
