"""The settings of the packing flow: values with defaults (flows/config.py reads them). Knows no Prefect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from pliant.errors import InputError
from pliant.flows import config
from pliant.flows.config import is_embedded, pretrained
from pliant.packing.artifact import PRECISIONS
from pliant.packing.scheduling.policy import BOUNDS
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.profiling.packing.steps import StepsConfig
from pliant.settings import Count, Fraction, NotNegative, OneOf, Positive
from pliant.training.packing.generator import GeneratorConfig
from pliant.training.packing.predictor import PredictorConfig

EMBEDDED, CORPUS = "embedded", "docstrings"
EMBEDDED_PAGES = 48
PARTS = ("generator-", "predictor-")
"""A name does not begin with these: the names of the registered models of its parts do."""


@dataclass(frozen=True, slots=True)
class LengthsConfig:
    """How outputs are observed. At temperature 0 a small model may repeat itself to the limit."""

    requests: Annotated[int, Field(ge=20)] = 1500  # prompts that the generator answers; fewer where there are no more
    temperature: NotNegative = 0.7
    limit: Count | None = None  # new tokens of an output at most; default: what the context leaves
    held_out: Fraction = 0.3  # share of them that judges the predictor, and that the reference workload draws from
    pages: Count = 1024  # the cache meanwhile, of 16 tokens each: no output depends on it
    sequences: Count = 32


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """The key-value cache that is served with: so many pages, or as many as `megabytes` hold.

    By default as many as the device has room for beside the weights; of the embedded generator, so small a model that no
    memory would bind, twice its context (`EMBEDDED_PAGES`).
    """

    pages: Count | None = None
    megabytes: Positive | None = None  # in place of `pages`
    page_tokens: int = 16
    host_pages: int = 48  # on the host, for what is preempted
    step_tokens: int = 256
    sequences: int = 256  # at most; the plan takes fewer where more make no more tokens


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """The grid of the policy `default`, and what may not be paid for a short mean completion time."""

    levels: Annotated[tuple[Annotated[float, Field(ge=BOUNDS[0])], ...], Field(min_length=1)] = (-1.0, 0.5, 1.0, 2.0)
    patience: Annotated[tuple[NotNegative, ...], Field(min_length=1)] = (0.75, 1.5, 3.0)
    recomputed: NotNegative = 0.03  # share of the tokens, at most
    tail: Positive = 1.5  # 99th percentile of the completion times in those of `paged`, at most
    seconds: Positive = 2.0  # that a request may take in the reference workload, where that has deadlines


@dataclass(frozen=True, slots=True)
class GateConfig:
    """`tolerance`: share by which a challenger's pinball loss and mean completion time may be worse, and `tail` its p99."""

    seeds: Count = 2
    tolerance: NotNegative = 0.02
    tail: NotNegative = 0.1


@dataclass(frozen=True, slots=True)
class RetrainConfig:
    """`least`: observed outputs below which there is nothing to learn from; of more, the `latest` are read.

    Those that were predicted wrongly count `weight` times as much as others.
    """

    least: Annotated[int, Field(ge=20)] = 100
    latest: int = 20_000
    weight: Positive = 3.0
    predictor: PredictorConfig = field(default_factory=lambda: PredictorConfig(epochs=4, rate=3e-4))

    def __post_init__(self) -> None:
        if self.least > self.latest:
            raise InputError("retrain.least", self.least, f"at most retrain.latest, {self.latest}")


PREDICTOR = PredictorConfig(width=96, layers=1, epochs=6)
"""Of a thousand prompts twice the layers and epochs learn nothing more, in ten times as long (docs/log)."""


@dataclass(frozen=True, slots=True)
class PackingFlowConfig(config.FlowConfig):
    """`generator`: embedded (trained on the corpus of docstrings), path:FOLDER or hub:NAME.

    `prompts`: docstrings (questions about them, as the embedded generator knows), or what training/packing/prompts.py
    reads, such as parquet:PATH. `column`: theirs; default: the first that has a usual name. `predictor`: where the settings
    have no such table, that of prompts of your own starts from a pretrained encoder if one can be had.
    `precision`: of the generator's weights, activations, keys and values: float32, bfloat16, float16 (on GPUs), or auto,
    which is bfloat16 on a GPU, and on a CPU where it has instructions for it and it was measured faster.
    """

    name: str = ""  # of the model as clients call it; default: docstrings, or the last step of the generator's address
    generator: str = EMBEDDED
    prompts: str = CORPUS
    column: str | None = None
    embedded: GeneratorConfig = field(default_factory=GeneratorConfig)
    lengths: LengthsConfig = field(default_factory=LengthsConfig)
    predictor: PredictorConfig = PREDICTOR
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    steps: StepsConfig = field(default_factory=StepsConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    retrain: RetrainConfig = field(default_factory=RetrainConfig)
    precision: Annotated[str, OneOf(("auto", *PRECISIONS))] = "auto"

    def __post_init__(self) -> None:
        config.FlowConfig.__post_init__(self)
        if not self.name:
            last = re.split(r"[:/]", self.generator.rstrip("/"))[-1]
            name = CORPUS if self.generator == EMBEDDED else re.sub(r"[^\w.-]", "-", last).lstrip(".-")
            object.__setattr__(self, "name", name)
        config.check_name("name", self.name, *PARTS)
        scheme, _, rest = self.generator.partition(":")
        if self.generator != EMBEDDED and (scheme not in ("path", "hub") or not rest):
            raise InputError("generator", self.generator, "embedded, path:FOLDER or hub:NAME")


def sizes(config: PackingFlowConfig) -> str:
    """Return what the flow trains and measures, in one sentence for people."""
    embedded, predictor = config.embedded, config.predictor
    generator = f"a Llama of {embedded.layers} layers and width {embedded.width}, {embedded.epochs:g} epochs"
    generator = generator if config.generator == EMBEDDED else config.generator
    encoder = f"a DistilBERT of {predictor.layers} layers and width {predictor.width}, {predictor.epochs} epochs"
    encoder = encoder if predictor.encoder == EMBEDDED else predictor.encoder
    predicted = {"best": f"{encoder} or a linear model", "linear": "a linear model"}.get(predictor.kind, encoder)
    return f"{generator}; {config.lengths.requests:,} outputs observed; predicted by {predicted}"


def read(source: config.Source = None, overrides: Mapping[str, Any] | None = None) -> PackingFlowConfig:
    """Return the settings from a TOML file or its content, with `overrides` laid over its top level.

    Short forms among the overrides: `data`, a list of one [NAME=]ADDRESS, for `prompts` (and `name`); `predictor`, an
    address, for `predictor.encoder`; `limit` for `lengths.requests`.
    """
    values = dict(overrides or {})
    if "data" in values:
        addresses = values.pop("data")
        if not isinstance(addresses, list | tuple) or len(addresses) != 1:
            raise InputError("data", addresses, "a list of one [NAME=]ADDRESS of prompts")
        name, address = config.named_address(addresses[0])
        values |= {"prompts": address} if name is None else {"prompts": address, "name": name}
    short = {"requests": values.pop("limit")} if "limit" in values else {}
    encoder = {"encoder": values.pop("predictor")} if isinstance(values.get("predictor"), str) else {}
    base = config.read(PackingFlowConfig, source, values)
    config.read(PackingFlowConfig, None, {"lengths": short})  # checked as the whole would be
    if base.predictor == PREDICTOR and not encoder and not is_embedded(base.prompts) and (start := pretrained()):
        encoder = {"encoder": start}
    embedded = base.generator == EMBEDDED and base.memory.pages is None and base.memory.megabytes is None
    return replace(
        base,
        lengths=replace(base.lengths, **short),
        predictor=replace(base.predictor, **encoder),
        memory=replace(base.memory, pages=EMBEDDED_PAGES) if embedded else base.memory,
    )
