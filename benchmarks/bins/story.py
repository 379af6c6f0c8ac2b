"""What `pliant demo --story` needs of bins: texts before and after the change, its flows, its requests and answers.

At first the clients send short docstrings, later long ones. The bins flow then chooses bins anew, for the lengths in the
service's journal: the encoder stays, so the answers stay the same. What that gains in time, the gate says; on a CPU, where
the dynamic runtime mostly is the fastest at every length, it may be nothing. The bad release has an encoder that has learnt
next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.benchmarks.bins.demo import OVERRIDES, Example, held_out
from pliant.benchmarks.demo.story_load import Mix, Said
from pliant.registry.names import BINS_PREFIX

STREAM = "package"
MODEL = BINS_PREFIX + STREAM
"""The registered model whose version every answer names."""
PATH = f"/v2/models/{STREAM}/infer"
STATUS = "/status"
CHANGE = "the clients send long texts instead of short ones"

FIRST: Mapping[str, Any] = OVERRIDES
_SHORT, _LONG = (0.0, 0.3), (0.7, 0.95)
"""Shares of the held-out texts, ordered by their characters."""


def after(journal: Path) -> Mapping[str, Any]:
    """Return what the flow gets after the alarm: the lengths are those of the requests that the service has seen."""
    streams = [{**stream, "lengths": [f"journal:{journal}", "data"]} for stream in OVERRIDES["streams"]]
    return {**OVERRIDES, "streams": streams}


def worse(journal: Path) -> Mapping[str, Any]:
    """Return what trains an encoder that learns next to nothing: at a thousandth of the usual rate, from 8 tokens a text."""
    usual = OVERRIDES["embedded"]
    classifier = {**usual["classifier"], "epochs": 1, "rate": 3e-6, "head_rate": 3e-6, "train_length": 8}
    return {**after(journal), "embedded": {**usual, "classifier": classifier}}


def mixes() -> tuple[Mix, Mix]:
    """Return the held-out texts that are sent before the change, and those after it."""
    ordered = sorted(held_out(STREAM), key=lambda example: len(example.text))
    before, later = (ordered[int(low * len(ordered)) : int(high * len(ordered))] for low, high in (_SHORT, _LONG))
    return Mix("short texts", before), Mix("long texts", later)


def body(example: Example, deadline: float) -> dict[str, Any]:
    """Return a request of the Open Inference Protocol, whose answers name the version that they are from."""
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [example.text]}
    return {"inputs": [tensor], "parameters": {"deadline": deadline}}


def read(answer: Mapping[str, Any], example: Example) -> Said:
    """Return what an answer says: its version, whether it is right, and the share of the best class."""
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    return Said(int(answer["model_version"]), outputs["label"][0] == example.label, max(outputs["scores"]))
