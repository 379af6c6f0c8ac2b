"""The settings of the bins flow: values with defaults (flows/config.py reads them). Knows no Prefect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from pliant.bins.artifact import ENGINES, PLACEMENTS, check_device
from pliant.errors import InputError
from pliant.flows import config
from pliant.flows.arithmetic import ArithmeticConfig
from pliant.flows.config import is_embedded, pretrained
from pliant.profiling.bins.latency import LatencyConfig
from pliant.settings import Count, OneOf, Positive
from pliant.training.bins import encoder as bins_encoder
from pliant.training.classifier import ClassifierConfig
from pliant.training.starts import LARGE, ScratchConfig
from pliant.training.text_data import Shares
from pliant.training.texts import Columns
from pliant.workload import ReferenceConfig

EMBEDDED, DATA, SCRATCH = "embedded", "data", "scratch"
AUTO: Literal["auto"] = "auto"
FINE_TUNING = ClassifierConfig(epochs=16, batch=16, rate=2e-4, head_rate=2e-3)
ENCODER = "encoder-"
"""A stream's name does not begin with this: the names of the registered models of encoders do."""


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """One encoder and the requests that it serves.

    `lengths`: sources of the requests' lengths, of which the first with enough of them counts: "data" (its texts),
    journal:PATH (of a service: the real requests) or parquet:PATH[:COLUMN].
    """

    encoder: str = EMBEDDED  # embedded (trained on `data`), path:FOLDER, hub:NAME or cascade:TASK (its largest model)
    data: str = "docstrings:package"  # see training/texts.py
    name: str | None = None  # default: the data's name, or the encoder's
    lengths: tuple[str, ...] = (DATA,)
    columns: Columns = field(default_factory=Columns)  # of a table
    limit: int | None = None  # texts, for a first try on large data
    max_length: int | None = None  # tokens; default: the encoder's own
    slo: Positive = 0.15  # seconds from arrival to answer

    def __post_init__(self) -> None:
        if self.encoder != EMBEDDED and not self.encoder.startswith("cascade:"):
            bins_encoder.check(self.encoder)
        for source in self.lengths or ("",):
            scheme, _, rest = source.partition(":")
            if source != DATA and (scheme not in ("journal", "parquet") or not rest):
                raise InputError("lengths", source or "empty", "data, journal:PATH or parquet:PATH[:COLUMN]")
        if self.name is not None:
            config.check_name("name of a stream", self.name, ENCODER)

    @property
    def needs_data(self) -> bool:
        return self.encoder == EMBEDDED or DATA in self.lengths

    def stream_name(self, data: str | None) -> str:
        """Return the stream's name, given its data's name. Raises `InputError`."""
        name = self.name or (data if self.encoder == EMBEDDED else None)
        name = name or re.sub(r"[^\w.-]", "-", re.split(r"[:/]", self.encoder.rstrip("/"))[-1])
        config.check_name("name of a stream", name, ENCODER)
        return name


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """A small classifier, trained in 20 s of one core: on the first 64 tokens of each text, though it reads 512.

    Trained on the first 128 it takes twice as long for 2.7 points more (docs/log). `start`: scratch (of `scratch`'s size),
    path:FOLDER or hub:NAME. Where the settings have no table `embedded`, a stream with data of your own starts from a
    pretrained model if one can be had.
    """

    start: str = SCRATCH
    scratch: ScratchConfig = field(default_factory=lambda: LARGE)
    classifier: ClassifierConfig = field(
        default_factory=lambda: ClassifierConfig(epochs=2, rate=2e-3, head_rate=2e-3, smoothing=0.1, max_length=64)
    )
    shares: Shares = field(default_factory=Shares)

    def __post_init__(self) -> None:
        if self.start != SCRATCH:
            bins_encoder.check(self.start)
        if self.classifier.max_length > self.scratch.positions:
            wanted = f"at most scratch.positions, {self.scratch.positions}"
            raise InputError("embedded.classifier.max_length", self.classifier.max_length, wanted)


@dataclass(frozen=True, slots=True)
class EdgesConfig:
    """How bins are chosen (flows/bins/plan.py)."""

    # bins; auto: the fewest whose padding costs `within` of what it costs with `most`
    count: Annotated[int, Field(ge=0)] | Literal["auto"] = AUTO
    most: Count = 16
    within: float = 0.02
    step: Count = 8  # tokens: edges are multiples of it
    batches: tuple[int, ...] = (1, 2, 4, 8)
    margin: float = 0.05  # share by which a static runtime must be measured faster than the dynamic one to be kept
    least: Count = 100  # requests that a source of lengths must have

    def __post_init__(self) -> None:
        if sorted(set(self.batches)) != list(self.batches) or min(self.batches, default=0) != 1:
            raise InputError("edges.batches", self.batches, "ascending, without repeats, from 1 on")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`engine` auto: each of `tried` is compiled and measured alone at a few lengths, and the fastest is taken."""

    engine: Annotated[str, OneOf((AUTO, *ENGINES))] = AUTO
    # default: onnx and eager on a CPU, graphs on a GPU
    tried: tuple[Annotated[str, OneOf(ENGINES)], ...] = ()
    lengths: tuple[int, ...] = (32, 128, 384)

    def __post_init__(self) -> None:
        if sorted(set(self.lengths)) != list(self.lengths) or min(self.lengths, default=0) < 1:
            raise InputError("engine.lengths", self.lengths, "ascending, without repeats and at least one")


@dataclass(frozen=True, slots=True)
class GateConfig(config.GateConfig):
    """`tolerance`: of the share answered in time and of the tested accuracy, and as a share of the mean latency."""

    tolerance: float = 0.01
    workers: Count = 2


@dataclass(frozen=True, slots=True)
class BinsFlowConfig(config.FlowConfig):
    """`threads`: also of a runtime on a CPU."""

    streams: Annotated[tuple[StreamConfig, ...], Field(min_length=1)] = (StreamConfig(),)
    embedded: EmbeddedConfig = field(default_factory=EmbeddedConfig)
    arithmetic: ArithmeticConfig = field(default_factory=ArithmeticConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    # Long launches scatter little, and would take most of the time.
    latency: LatencyConfig = field(default_factory=lambda: LatencyConfig(repeats=7, budget=0.3))
    edges: EdgesConfig = field(default_factory=EdgesConfig)
    placement: Annotated[str, OneOf(PLACEMENTS)] = PLACEMENTS[0]
    gate: GateConfig = field(default_factory=GateConfig)
    reference: ReferenceConfig = field(default_factory=lambda: ReferenceConfig(seconds=1.0))

    def __post_init__(self) -> None:
        config.FlowConfig.__post_init__(self)
        if self.engine.engine != AUTO:
            check_device(self.engine.engine, self.device)


def sizes(config: BinsFlowConfig) -> str:
    """Return what the flow trains and measures, in one sentence for people."""
    streams = ", ".join(f"{stream.encoder} on {stream.data}" for stream in config.streams)
    scratch, classifier = config.embedded.scratch, config.embedded.classifier
    size = f"{scratch.layers} layers of width {scratch.width}"
    embedded = f"{size if config.embedded.start == SCRATCH else config.embedded.start}, {classifier.epochs:g} epochs"
    measured = f"at most {config.edges.most} bins, measured up to batch {max(config.edges.batches)}"
    return f"encoders: {streams} (embedded: {embedded}); {measured}"


def read(source: config.Source = None, overrides: Mapping[str, Any] | None = None) -> BinsFlowConfig:
    """Return the settings from a TOML file or its content, with `overrides` laid over its top level.

    Short forms among the overrides: `data`, a list of `[NAME=]ADDRESS`, for `streams`; `encoder`, `limit`, `lengths` and
    `slo` for those of every stream.
    """
    values = dict(overrides or {})
    addresses = values.pop("data", None)
    short: dict[str, Any] = {key: values.pop(key) for key in ("encoder", "limit", "lengths", "slo") if key in values}
    if addresses is not None:
        values["streams"] = config.parse_addresses(addresses)
    flow_config = config.read(BinsFlowConfig, source, values)
    if not short:
        return _started(flow_config)
    checked = config.read(StreamConfig, None, short)  # as a stream's own would be
    changes = {key: getattr(checked, key) for key in short}
    return _started(replace(flow_config, streams=tuple(replace(stream, **changes) for stream in flow_config.streams)))


def _started(flow_config: BinsFlowConfig) -> BinsFlowConfig:
    """Return the settings with a pretrained start where they leave it open, of data that does not come with Pliant."""
    own = any(stream.encoder == EMBEDDED and not is_embedded(stream.data) for stream in flow_config.streams)
    if not own or flow_config.embedded != EmbeddedConfig() or not (address := pretrained()):
        return flow_config
    return replace(flow_config, embedded=EmbeddedConfig(address, classifier=FINE_TUNING))
