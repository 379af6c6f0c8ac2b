"""What users get who set nothing: a changed default changes what their services do, and belongs into CHANGELOG.md.

`python -m tests.test_defaults` writes the present ones into tests/golden/defaults.json.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields

from pliant import systems
from pliant.bins.knowledge import Config, Scaling
from pliant.bins.simulated import ReferenceConfig as BinsReference
from pliant.cascade.artifact import Gate
from pliant.cascade.plan import PlanConfig
from pliant.cascade.scheduler import Options as CascadeOptions
from pliant.cascade.search import SearchConfig
from pliant.cascade.simulated import ReferenceConfig as CascadeReference
from pliant.cascade.tabi import TabiConfig
from pliant.fairness import FairnessConfig
from pliant.packing.engine.submission import Sampling
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import ReferenceConfig as PackingReference
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.protocol import Request
from pliant.serving.http.door.connections import DoorLimits
from pliant.serving.packing.engine.engine import EngineLimits
from pliant.serving.settings import settings_of
from pliant.tokens.adaptive import AdaptiveConfig
from pliant.tokens.batched import BatchingConfig, InfaasConfig
from pliant.tokens.otas import OtasConfig
from pliant.tokens.published import SyntheticConfig
from pliant.tokens.scheduler import Options as TokensOptions
from pliant.tokens.simulated import ReferenceConfig as TokensReference
from pliant.tokens.slackfit import SlackFitConfig
from tests.fixtures.places import ROOT

GOLDEN = ROOT / "tests/golden/defaults.json"
KINDS = {
    "scheduler of tokens": TokensOptions,
    "batches of tokens": BatchingConfig,
    "prices of tokens": AdaptiveConfig,
    "OTAS": OtasConfig,
    "INFaaS": InfaasConfig,
    "SlackFit": SlackFitConfig,
    "published load of tokens": SyntheticConfig,
    "reference load of tokens": TokensReference,
    "scheduler of bins": Config,
    "scaling of bins": Scaling,
    "reference load of bins": BinsReference,
    "scheduler of cascade": CascadeOptions,
    "plan of cascade": PlanConfig,
    "search of cascade": SearchConfig,
    "gate of cascade": Gate,
    "Tabi": TabiConfig,
    "reference load of cascade": CascadeReference,
    "rules of packing": Rules,
    "memory of packing": Memory,
    "sampling of packing": Sampling,
    "reference load of packing": PackingReference,
    "prompt in packing's journal": Prompt,
    "request in journals": Request,
    "engine of packing": EngineLimits,
    "tenants": FairnessConfig,
    "connections": DoorLimits,
}


def defaults() -> dict[str, dict[str, str]]:
    return {
        name: {field.name: repr(field.default) for field in fields(kind) if field.default is not MISSING}
        for name, kind in KINDS.items()
    } | {
        f"settings of {name}": {field: repr(each.default) for field, each in settings_of(name).model_fields.items()}
        for name in systems.names()
    }


def test_who_sets_nothing_gets_what_was_released():
    assert defaults() == json.loads(GOLDEN.read_text(encoding="utf-8"))


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(defaults(), indent=2) + "\n", encoding="utf-8")
