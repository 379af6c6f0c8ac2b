"""The settings of the packing service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from pliant.errors import InputError
from pliant.packing.scheduling.policy import SERVED
from pliant.registry import names
from pliant.serving.settings import Settings
from pliant.settings import Count, NotNegative, OneOf, Positive

ENGINES = ("pliant", "vllm")
"""What runs the model: Pliant's own engine, or vLLM in its own environment (serving/packing/vllm)."""


class PackingSettings(Settings):
    """The settings of the packing service. An engine that is silent for `launch_limit` seconds counts as hung."""

    SYSTEM: ClassVar[str] = "packing"

    experiment: str = names.experiment("packing")
    engine: Annotated[str, OneOf(ENGINES)] = "pliant"
    """What runs the model; docs/vllm.md says how vLLM is installed."""
    policy: Annotated[str, OneOf(SERVED)] = "default"
    """Scheduling policy."""
    trial_copies: int = 200
    """Copies to compare before the canary, fewer as a text may take seconds; 0: no shadow."""
    processes: Count = 1
    """Processes of vLLM that share a model, each on a GPU of its own."""
    max_texts: Count = 256
    """Outputs of one request."""
    slo_ttft_ms: NotNegative = 0.0
    """Default target for the first token in milliseconds; 0: no target."""
    slo_tpot_ms: NotNegative = 0.0
    """Default target for each further token in milliseconds; 0: no target."""
    strict_fields: bool = False
    """Refuse fields that neither OpenAI nor vLLM knows, instead of ignoring them."""
    predict_device: str = ""
    """Device of the length predictor; by default the engine's."""
    predict_limit: Positive = 0.05
    """Seconds that a request waits for the forecast of its length."""
    stream_limit: Positive = 30.0
    """Seconds in which a client must read a piece of its stream."""
    observe: bool = False
    """Keep prompts and the lengths of their outputs, to train predictors (`pliant train packing --observed`)."""
    observed_bytes: Count = 64 * 1024 * 1024
    """Bytes at which the file of lengths is rotated; two files are kept."""

    @model_validator(mode="after")
    def _processes_fit(self) -> Self:
        if self.processes > 1 and (self.engine != "vllm" or "," in self.device):
            raise InputError("PLIANT_PROCESSES", self.processes, "1, but with PLIANT_ENGINE=vllm on one PLIANT_DEVICE")
        if self.spare:
            why = "pages fill an engine's memory, so a second one has no room, and texts go on after a restart"
            raise InputError("PLIANT_SPARE", self.spare, f"0 for packing: {why}")
        return self


SETTINGS = PackingSettings
