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
from typing import Any, get_type_hints

import cattrs

from pliant.errors import InputError
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
class TokensFlowConfig:
    """`data`: one address a task, optionally `NAME=ADDRESS` (see training/data.py: digits:, parquet:, folder:, hub:).

    `backbone`: embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH. `threads`: torch's when profiling and serving on CPU.
    """

    data: tuple[str, ...] = ("digits:digit", "digits:loops", "digits:stroke")
    limit: int | None = None  # images a task, for a first try on large data
    backbone: str = "embedded"
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    foundation: FoundationConfig = field(default_factory=FoundationConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    gate: GateConfig = field(default_factory=GateConfig)


def read(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> TokensFlowConfig:
    """From a TOML file, with `overrides` laid over its top level."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise InputError("config", path, f"a readable TOML file ({error})") from error
    values |= dict(overrides or {})
    where = str(path) if path is not None else "the given settings"
    _check_keys(values, TokensFlowConfig, where)
    try:
        return cattrs.structure(values, TokensFlowConfig)
    except Exception as error:
        told = "; ".join(cattrs.transform_error(error))
        raise InputError("config", told, f"as TokensFlowConfig says ({where})") from error


def _check_keys(values: Mapping[str, Any], kind: type, where: str, above: str = "") -> None:
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            hint = f"; did you mean {above}{near[0]}?" if near else f"; known: {', '.join(hints)}"
            raise InputError(f"key {above}{key} in {where}", "unknown", f"a known one{hint}")
        if dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            _check_keys(value, hints[key], where, f"{above}{key}.")
