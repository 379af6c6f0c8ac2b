"""The demo's stages by system, with what each costs (benchmarks/demo_estimate.py says in which units)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.demo_estimate import Stage

START = (Stage("Prefect's server"),)
STAGES: Mapping[str, Sequence[Stage]] = {
    "tokens": (Stage("foundation"),),
    "bins": (),
    "cascade": (),
    "packing": (),
}
