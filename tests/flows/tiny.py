"""A setting of the tokens flow that is done in seconds: a two-layer net that has hardly seen a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SETTING: Mapping[str, Any] = {
    "data": ["digits:digit"],
    "foundation": {
        "options": {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2},
        "images": 128,
    },
    "task": {"epochs": 0.05, "head_steps": 5},
    "latency": {"batches": [1, 2], "timer": {"warmup": 0, "least": 1, "most": 1}},
    "reference": {"seconds": 0.2},
    "gate": {"seeds": 1, "tolerance": 1.0},  # so that whatever is made is promoted
}


def setting(**changes: Any) -> dict[str, Any]:
    """The tiny setting with some of its top-level keys replaced."""
    return {**SETTING, **changes}
