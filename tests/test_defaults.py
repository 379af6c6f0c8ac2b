"""What users get who set nothing: a changed default changes what their services do, and belongs into CHANGELOG.md.

`python -m tests.test_defaults` writes the present ones into tests/golden/defaults.json.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields

from pliant import systems
from pliant.bins.knowledge import Config, Scaling
from pliant.cascade.plan import PlanConfig
from pliant.cascade.scheduler import Options as CascadeOptions
from pliant.cascade.search import SearchConfig
from pliant.fairness import FairnessConfig
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.tokens.batching import BatchingConfig
from pliant.tokens.scheduler import Options as TokensOptions
from serving.http.door.limits import DoorLimits
from serving.packing.engine.engine import EngineLimits
from serving.settings import settings_of
from tests.fixtures.places import ROOT

GOLDEN = ROOT / "tests/golden/defaults.json"
KINDS = {
    **{f"settings of {name}": settings_of(name) for name in systems.names()},
    "scheduler of tokens": TokensOptions,
    "batches of tokens": BatchingConfig,
    "scheduler of bins": Config,
    "scaling of bins": Scaling,
    "scheduler of cascade": CascadeOptions,
    "plan of cascade": PlanConfig,
    "search of cascade": SearchConfig,
    "rules of packing": Rules,
    "memory of packing": Memory,
    "engine of packing": EngineLimits,
    "tenants": FairnessConfig,
    "connections": DoorLimits,
}


def defaults() -> dict[str, dict[str, str]]:
    return {
        name: {field.name: repr(field.default) for field in fields(kind) if field.default is not MISSING}
        for name, kind in KINDS.items()
    }


def test_who_sets_nothing_gets_what_was_released():
    assert defaults() == json.loads(GOLDEN.read_text(encoding="utf-8"))


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(defaults(), indent=2) + "\n", encoding="utf-8")
