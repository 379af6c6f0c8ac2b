"""What `pliant.compare` plays bins on: devices as fast with BERT-base as Arlo says (published.py), lengths as of tweets."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.published import BERT_BASE, drawn_lengths, published_bins
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.comparison import Figures, Own, Play, Times, figures, scheduler
from pliant.errors import InputError
from pliant.protocol import Request
from pliant.report import observations
from pliant.simulator import simulate

DEVICES = 4


def ground(times: Times, seed: int) -> Play:
    """Return what plays a policy on these arrivals, on DEVICES devices; an own one may use every runtime on each."""
    bins, lengths = published_bins(BERT_BASE), drawn_lengths(len(times), np.random.default_rng(seed)).tolist()
    slo, name = bins.slo, bins.name
    load = [Request(i, at, at + slo, name, 1.0, lengths[i]) for i, at in enumerate(times.tolist())]
    arlo: dict[str, Any] = {"dispatch": "published", "plan": "published", "period": 120.0, "drop_late": False}
    schemes: dict[str, tuple[str, str, dict[str, Any]]] = {
        "default": ("all", "shared", {}),
        "first-come": ("dynamic", "shared", {"patience": 0.0}),
        "arlo": ("static", "single", arlo),
        "padding": ("longest", "shared", {"patience": 0.0, "drop_late": False}),
    }

    def play(policy: str | Own) -> Figures:
        if isinstance(policy, str) and policy not in schemes:
            raise InputError("policy", policy, f"one of {', '.join(schemes)}, or an own one")
        runtimes, placement, changes = schemes[policy if isinstance(policy, str) else "default"]
        known, deployed = knowledge_of([bins], runtimes, placement), tuple[int, ...]()
        if placement == "single":  # which runtime each device holds before the first plan
            deployed = tuple(start_plan(known, DEVICES, list(known.streams[0].shares)))
        config = Config(DEVICES, margin=0.0, deployed=deployed, **changes)
        own = None if isinstance(policy, str) else scheduler(policy(known), DEVICES)
        device = SimulatedBins(known, load, np.random.default_rng(seed), 0.05)
        return figures(observations(simulate(own or BinsScheduler(known, config), load, device)))

    return play
