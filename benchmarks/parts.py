"""Every part of every bench, in one list: what it measures, the function that does it, and how long it takes.

Imports nothing heavy, as `pliant bench SYSTEM --help` prints it. The targets of a part are in its function's result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pliant import systems


@dataclass(frozen=True, slots=True)
class Part:
    """`measure`: a function of a `harness.Context`, or where it stands in this package, as "module:function".

    `seconds`: of the quick setting on the machine of the slow setting (CONTRIBUTING.md), with what it trains first.
    """

    measures: str
    measure: Callable[[Any], Any] | str
    seconds: float

    def function(self) -> Callable[[Any], Any]:
        """Return the function that measures it, which gives its targets, and further details."""
        if not isinstance(self.measure, str):
            return self.measure
        module, _, name = self.measure.partition(":")
        function: Callable[[Any], Any] = getattr(import_module(f"pliant.benchmarks.{module}"), name)
        return function


PARTS: Mapping[str, Mapping[str, Part]] = {
    "tokens": {
        "planner": Part("seconds a plan takes, by the batches that wait", "tokens.planner:planner", 5.0),
        "kernels": Part("images/s of every gamma, over plain timm; of points", "tokens.kernels:kernels_of_vit", 120.0),
        "policies": Part("every policy's utility, simulated, over the fluid bound", "tokens.policies:policies", 180.0),
        "devices": Part("utility of several devices, simulated, over that of one", "tokens.devices:devices", 30.0),
        "baselines": Part(
            "utility over gamma 0 over HTTP, what the service adds to a request, scheduler events/s",
            "tokens.baselines:baselines",
            260.0,
        ),
        "live": Part("utility over HTTP, over BentoML's batching, LitServe and Ray Serve", "tokens.live:live", 300.0),
        "photographs": Part(
            "points of a real ViT, and their utility over HTTP over OTAS", "tokens.photographs:photographs", 240.0
        ),
        "plan": Part("what `pliant plan` simulates, over live runs", "tokens.replay:planned", 90.0),
    },
    "bins": {
        "planner": Part("seconds of an exact plan", "bins.planner:planner", 15.0),
        "dispatch": Part("decisions/s of the scheduler's dispatch", "bins.dispatch:dispatch", 105.0),
        "contest": Part(
            "mean latency of every scheme, simulated, over the published pair's", "bins.contest:contest", 320.0
        ),
        "live": Part("mean latency over HTTP, over BentoML's batching and one by one", "bins.live:live", 150.0),
        "nodes": Part("requests lost where a node of a Ray cluster dies", "bins.nodes:nodes", 285.0),
        "plan": Part("what `pliant plan` simulates, over live runs", "bins.demo:planned", 90.0),
    },
    "cascade": {
        "contest": Part(
            "latency and accuracy on public data sets, over the large model and Tabi",
            "cascade.contest:contest",
            500.0,
        ),
        "live": Part("requests/s over HTTP at equal p99, over the large model alone", "cascade.live:live", 440.0),
        "plan": Part("what `pliant plan` simulates, over live runs", "cascade.demo:planned", 90.0),
    },
    "packing": {
        "forecasts": Part("nothing: trains the predictor that `study` forecasts by", "packing.vicuna:forecasts", 65.0),
        "study": Part("completion times of every policy, simulated, over S3's", "packing.study:study", 100.0),
        "slo": Part(
            "goodput with latency targets, simulated, over policies without admission", "packing.slo:slo", 60.0
        ),
        "published": Part("S3's published tables, simulated", "packing.published:published", 30.0),
        "batches": Part("tokens/s of the engine, by the sequences of an iteration", "packing.batches:batches", 40.0),
        "alike": Part("time to the first token of prompts that begin alike", "packing.alike:alike", 60.0),
        "real": Part(
            "tokens/s of a real language model, over transformers' batching", "packing.real_model:real", 240.0
        ),
        "vllm": Part("completion times of schedulers in vLLM", "packing.vllm.contest:contest", 600.0),
        "plan": Part("what `pliant plan` simulates, over live runs", "packing.demo:planned", 90.0),
    },
    "watch": {
        "rollout": Part("how soon worse challengers are taken back, simulated", "watch.rollout:rollout", 240.0),
        "quiet": Part("false alarms in quiet months of recorded data", "watch.quiet:quiet", 1200.0),
        "dependence": Part("alarms where requests depend on each other", "watch.dependence:dependence", 1200.0),
        "gate": Part("how often equals are refused for speed, and a slower one is", "bins.gate:gate", 330.0),
        "rollback": Part(
            "seconds until the former release answers, requests that fail",
            "tokens.rollback:rollback",
            60.0,
        ),
    },
    "robust": {
        name: Part(
            f"{name} in worlds that differ from its profile, over doing nothing clever",
            f"{name}.robust:in_worlds",
            100.0,
        )
        for name in systems.names()
    },
}
"""Bench -> part -> what it is, in the order in which parts run."""
