"""The settings of the tokens flow: values with defaults (flows/config.py reads them). Knows no Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.errors import InputError
from pliant.flows import config
from pliant.flows.arithmetic import ArithmeticConfig
from pliant.flows.config import GateConfig
from pliant.flows.feedback import FeedbackConfig
from pliant.profiling.tokens.latency import LatencyConfig
from pliant.tokens.simulated import ReferenceConfig
from pliant.training.data import Columns
from pliant.training.tokens.foundation import FoundationConfig
from pliant.training.tokens.task import TaskConfig


@dataclass(frozen=True, slots=True)
class TokensFlowConfig(config.FlowConfig):
    """`data`: one address a task, optionally `NAME=ADDRESS` (see training/data.py: digits:, parquet:, folder:, hub:).

    `columns`: of tables of pictures. `upstream`: address of the data that the embedded backbone is trained on, whole; by
    default the first task's. `backbone`: embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH.
    """

    data: tuple[str, ...] = ("digits:digit", "digits:loops", "digits:stroke")
    columns: Columns = field(default_factory=Columns)
    limit: int | None = None  # images a task, for a first try on large data
    measured: int | None = None  # images of either split that a task's accuracies are measured on; None: all
    upstream: str | None = None
    backbone: str = "embedded"
    image_size: int | None = None  # pixels of a picture's side that a backbone not embedded takes; None: its own
    foundation: FoundationConfig = field(default_factory=FoundationConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    arithmetic: ArithmeticConfig = field(default_factory=ArithmeticConfig)  # precision of what is served
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    feedback: FeedbackConfig = field(default_factory=FeedbackConfig)  # labels that tasks learn from

    def __post_init__(self) -> None:
        config.FlowConfig.__post_init__(self)
        if self.image_size is not None and self.backbone == "embedded":
            raise InputError(
                "image_size", self.image_size, "left out with backbone embedded: foundation.options say it"
            )
        trained = self.task.gammas
        if untrained := [gamma for gamma in self.latency.gammas if gamma > 0 and gamma not in trained]:
            raise InputError(
                "latency.gammas",
                untrained,
                f"0, below 0, or one of task.gammas, {', '.join(map(str, trained)) or 'none'}",
            )
        for address in self.data:
            name, _ = config.named_address(address)
            if name is not None:
                config.check_name("name of a task", name)


def sizes(config: TokensFlowConfig) -> str:
    """Return what the flow trains and measures, in one sentence for people."""
    sizes = config.foundation.options
    backbone = config.backbone
    if backbone == "embedded":
        shape = f"width {sizes['embed_dim']}, {sizes.get('depth', 12)} layers"
        backbone = f"a vision transformer ({shape}) trained on {config.foundation.images:,} images"
    gammas = ", ".join(map(str, config.task.gammas)) or "none"
    return f"{', '.join(config.data)} on {backbone}, with prompts of {gammas} tokens"


def read(source: config.Source = None, overrides: Mapping[str, Any] | None = None) -> TokensFlowConfig:
    """Return the settings from a TOML file or its content, with `overrides` laid over its top level."""
    return config.read(TokensFlowConfig, source, overrides)
