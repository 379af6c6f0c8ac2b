"""Pliant's decisions and models: what a notebook needs to try a scheduler. Importing it loads no framework.

How much of a burst does merging tokens save? Two gammas were measured on a device: 0 is the plain model, -10 merges
tokens, which is faster and less accurate.

>>> import numpy as np
>>> import pliant
>>> latency = pliant.LatencyTable((-10, 0), (1, 8), ((0.004, 0.016), (0.008, 0.040)))  # seconds by gamma and batch
>>> accuracy = {"digit": {-10: 0.8, 0: 0.9}}
>>> knowledge = pliant.TokensKnowledge(latency, accuracy, pliant.rate_rule(latency, accuracy["digit"], 8, 0.1))
>>> burst = [pliant.Request(i, i / 300, i / 300 + 0.1, "digit") for i in range(300)]  # arrival and deadline in seconds
>>> def answered(policy):
...     device = pliant.SimulatedTokens(latency, accuracy, burst, np.random.default_rng(0))
...     journal = pliant.simulate(pliant.tokens_scheduler(policy, knowledge), burst, device)
...     assert pliant.replay(pliant.tokens_scheduler(policy, knowledge), journal) == journal  # the same decisions again
...     return sum(request.answered is not None for request in pliant.observations(journal))
>>> answered("default") > answered("pets")  # PetS keeps to gamma 0
True

The public names, by system:

- all: `compare`, `Request`, `LatencyTable`, `simulate`, `replay`, `observations`, `summarise`
- tokens: `tokens_scheduler`, `TokensKnowledge`, `SimulatedTokens`, `plan_tokens`, `rate_rule`
- bins: `BinsScheduler`, `BinsKnowledge`, `SimulatedBins`, `allocate`
- cascade: `CascadeScheduler`, `CascadeKnowledge`, `SimulatedCascade`, `plan_cascade`, `Candidate`, `Gate`
- packing: `PackingScheduler`, `simulate_packing`, `packing_rules`, `PackingPolicy`
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_OFFERED = {
    "compare": "comparison:compare",
    "Request": "protocol:Request",
    "LatencyTable": "latency:LatencyTable",
    "simulate": "simulator:simulate",
    "replay": "protocol:replay",
    "observations": "report:observations",
    "summarise": "report:summarise",
    "tokens_scheduler": "tokens.policies:make",
    "TokensKnowledge": "tokens.scheduler:Knowledge",
    "SimulatedTokens": "tokens.simulated:SimulatedDevice",
    "plan_tokens": "tokens.adaptive:plan",
    "rate_rule": "tokens.otas:rate_rule",
    "BinsScheduler": "bins.scheduler:BinsScheduler",
    "BinsKnowledge": "bins.knowledge:Knowledge",
    "SimulatedBins": "bins.simulated:SimulatedBins",
    "allocate": "bins.planning.allocate:allocate",
    "CascadeScheduler": "cascade.scheduler:CascadeScheduler",
    "CascadeKnowledge": "cascade.knowledge:Knowledge",
    "SimulatedCascade": "cascade.simulated:SimulatedCascade",
    "plan_cascade": "cascade.plan:make",
    "PackingScheduler": "packing.scheduling.scheduler:PackingScheduler",
    "simulate_packing": "packing.scheduling.simulated:simulate",
    "packing_rules": "packing.scheduling.reference:rules_of",
    "PackingPolicy": "packing.scheduling.policies:OnDemand",
    "Candidate": "cascade.artifact:Candidate",
    "Gate": "cascade.artifact:Gate",
}

__all__ = list(_OFFERED)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import pliant` costs nothing.

    Raises `ImportError` where a package is missing that numpy alone does not replace.
    """
    if name not in _OFFERED:
        raise AttributeError(f"module 'pliant' has no attribute {name!r}")
    module, _, item = _OFFERED[name].partition(":")
    try:
        return getattr(import_module(f"pliant.{module}"), item)
    except ModuleNotFoundError as error:
        raise ImportError(f"pliant.{name} needs {error.name}: `pip install 'pliant-core[sim]'` brings it") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
