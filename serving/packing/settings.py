"""The settings of the packing service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pliant.errors import InputError
from pliant.packing.scheduling.policy import SERVED
from pliant.registry import names
from pliant.serving.settings import Settings

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
    trial_copies: int = 200  # Copies to compare before the canary, fewer as a text may take seconds; 0: no shadow.
    processes: int = 1  # Processes of vLLM that share a model, each on a GPU of its own.
    max_texts: int = 256  # Outputs of one request.
    slo_ttft_ms: float = 0.0  # Default target for the first token in milliseconds; 0: no target.
    slo_tpot_ms: float = 0.0  # Default target for each further token in milliseconds; 0: no target.
    strict_fields: bool = False  # Refuse fields that neither OpenAI nor vLLM knows, instead of ignoring them.
    predict_device: str = ""  # Device of the length predictor; by default the engine's.
    predict_limit: float = 0.05  # Seconds that a request waits for the forecast of its length.
    stream_limit: float = 30.0  # Seconds in which a client must read a piece of its stream.
    observe: bool = False  # Keep prompts and the lengths of their outputs, to train predictors.
    observed_bytes: int = 64 * 1024 * 1024  # Bytes at which the file of lengths is rotated; two files are kept.

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
