"""What the tokens flow is told: values with defaults, read from TOML or a mapping. Knows no Prefect.

An unknown key fails with the key, the file and the nearest valid key.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import cattrs

from pliant.errors import InputError
from pliant.tokens.artifact import Option
from pliant.tokens.reference import ReferenceConfig
from profiling.tokens_latency import LatencyConfig
from training.tokens_foundation import FoundationConfig
from training.tokens_task import TaskConfig


@dataclass(frozen=True, slots=True)
class GateConfig:
    """`tolerance`: share of the champion's simulated utility that a challenger may fall short by (noise of the draws)."""

    seeds: int = 3
    tolerance: float = 0.005


@dataclass(frozen=True, slots=True)
class VariantConfig:
    """A model of another size, for the policy infaas: the foundation with some options replaced, or another backbone."""

    name: str
    options: Mapping[str, Option] = field(default_factory=dict)  # laid over foundation.options
    images: int | None = None  # in place of foundation.images, as the next
    learning_rate: float | None = None
    backbone: str | None = None  # as in TokensFlowConfig


@dataclass(frozen=True, slots=True)
class TokensFlowConfig:
    """`data`: one address a task, optionally `NAME=ADDRESS` (see training/data.py: digits:, parquet:, folder:, hub:).

    `upstream`: address of the data that the embedded backbone is trained on, whole; by default the first task's.
    `backbone`: embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH. `threads`: torch's when profiling and serving on CPU.
    """

    data: tuple[str, ...] = ("digits:digit", "digits:loops", "digits:stroke")
    limit: int | None = None  # images a task, for a first try on large data
    upstream: str | None = None
    backbone: str = "embedded"
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    foundation: FoundationConfig = field(default_factory=FoundationConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    variants: tuple[VariantConfig, ...] = (
        VariantConfig("small", {"embed_dim": 96, "depth": 4}, learning_rate=2e-3),
        VariantConfig("base"),
        VariantConfig("large", {"embed_dim": 256, "num_heads": 4}, learning_rate=6e-4),
    )


def read(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> TokensFlowConfig:
    """From a TOML file, with `overrides` laid over its top level."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:  # no TOML, or no UTF-8
            raise InputError("config", path, f"a readable TOML file ({error})") from error
    values |= dict(overrides or {})
    where = str(path) if path is not None else "the given settings"
    _check_keys(values, TokensFlowConfig, where)
    try:
        return _converter().structure(values, TokensFlowConfig)
    except Exception as error:
        own = _own(error)
        if own is not None:
            raise own from error
        told = "; ".join(cattrs.transform_error(error))
        raise InputError("config", told, f"as TokensFlowConfig says ({where})") from error


def _own(error: BaseException) -> InputError | None:
    """The complaint of one of our own checks, wherever cattrs has wrapped it."""
    inner = getattr(error, "exceptions", ())
    return error if isinstance(error, InputError) else next((own for e in inner if (own := _own(e))), None)


def _converter() -> cattrs.Converter:
    """Takes values as they are: cattrs alone would cut 2.7 to 2, and a text in place of a list into its letters."""
    converter = cattrs.Converter()

    def sequence(value: Any, kind: Any) -> tuple[Any, ...]:
        parts = get_args(kind)
        if not isinstance(value, list | tuple) or (parts[-1] is not ... and len(value) != len(parts)):
            raise TypeError(value)
        each = [parts[0]] * len(value) if parts[-1] is ... else parts
        return tuple(converter.structure(one, part) for one, part in zip(value, each, strict=True))

    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exact)
    converter.register_structure_hook_func(lambda kind: kind == Option, _option)
    converter.register_structure_hook_func(lambda kind: get_origin(kind) is tuple, sequence)
    return converter


def _exact(value: Any, kind: Any) -> Any:
    """A whole number will do for a number; `true` is no number."""
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(value)
    return kind(value)


def _option(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _check_keys(values: Mapping[str, Any], kind: type, where: str, above: str = "") -> None:
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            hint = f"; did you mean {above}{near[0]}?" if near else f"; known: {', '.join(hints)}"
            raise InputError(f"key {above}{key} in {where}", "unknown", f"a known one{hint}")
        if dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            _check_keys(value, hints[key], where, f"{above}{key}.")
