"""The settings of the flow and of the service, and the options of commands."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pliant.cli import options
from pliant.flows import config
from pliant.serving.settings import Settings


@dataclass(frozen=True, slots=True)
class GateConfig:
    tolerance: float = 0.02  # share of the simulated utility that a challenger may fall short by
    below_linear: bool | None = None


@dataclass(frozen=True, slots=True)
class WordsConfig:
    data: str = "docstrings:package"  # as in training/texts.py
    limit: int | None = 2000  # texts
    device: str = "cpu"
    threads: int = 1
    other_device: bool = False
    gate: GateConfig = field(default_factory=GateConfig)
    reference: float = 2.0  # the gate's load, over what a device can answer with all words


def sizes(settings: WordsConfig) -> str:
    return settings.data


def read(source: config.Source = None, overrides: Mapping[str, Any] | None = None) -> WordsConfig:
    values = dict(overrides or {})
    if "data" in values:
        values["data"] = config.named_address(values["data"][0])[1]
    return config.read(WordsConfig, source, values)


def train(parser: ArgumentParser) -> None:
    options.training(parser, "as for cascade")


def simulate(parser: ArgumentParser) -> None:
    options.load(parser, "seconds")


class WordsSettings(Settings):
    SYSTEM: ClassVar[str] = "words"

    experiment: str = "pliant-words"


SETTINGS = WordsSettings
