"""The settings of the packing service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pliant.errors import InputError
from pliant.packing.scheduling.policy import SERVED
from registry import names
from serving.settings import Settings

ENGINES = ("pliant", "vllm")
"""What runs the model: Pliant's own engine, or vLLM in its own environment (serving/packing/vllm)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingSettings(Settings):
    """The settings of the packing service. An engine that is silent for `launch_limit` seconds counts as hung."""

    SYSTEM: ClassVar[str] = "packing"
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {"policy": SERVED, "engine": ENGINES}
    POSITIVE: ClassVar[tuple[str, ...]] = (
        *Settings.POSITIVE,
        "max_texts",
        "predict_limit",
        "stream_limit",
        "observed_bytes",
        "processes",
    )

    experiment: str = names.experiment("packing")
    engine: str = "pliant"  # one of ENGINES
    policy: str = "default"  # one of pliant/packing/scheduling/policy.py
    trial_copies: int = 200  # fewer than for other systems: a text may take seconds
    processes: int = 1  # of vLLM that share a model, each on a GPU of its own; Pliant's engine has one
    max_texts: int = 256  # outputs of one request
    slo_ttft_ms: float = 0.0  # target of the first token, where a request has none of its own; 0: none
    slo_tpot_ms: float = 0.0  # target of each further token, likewise
    strict_fields: bool = False  # refuse requests with fields that neither OpenAI nor vLLM has; else they are ignored
    predict_device: str = ""  # of the predictor's process; empty: the engine's device
    predict_limit: float = 0.05  # seconds that a request waits for the forecast of its output's length
    stream_limit: float = 30.0  # seconds in which a client must take a piece of its stream
    observe: bool = False  # store prompts and the lengths of their outputs in `home`, to train predictors
    observed_bytes: int = 64 * 1024 * 1024  # size at which the file of lengths is rotated; two files are kept

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        for name in ("slo_ttft_ms", "slo_tpot_ms"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(
                    f"PLIANT_{name.upper()}", getattr(self, name), "0 for no target, or positive and finite"
                )
        if self.processes > 1 and (self.engine != "vllm" or "," in self.device):
            raise InputError("PLIANT_PROCESSES", self.processes, "1, but with PLIANT_ENGINE=vllm on one PLIANT_DEVICE")
        if self.spare:
            raise InputError(
                "PLIANT_SPARE",
                self.spare,
                "0 for packing: pages fill an engine's memory, so a second one has no room, and texts go on after a "
                "restart",
            )


SETTINGS = PackingSettings
