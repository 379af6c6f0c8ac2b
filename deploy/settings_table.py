"""The table of all settings, read from their classes: variable, default, systems, and the meaning in the docstring.

`python -m deploy.bentos` writes it into docs/settings.md, and a system's part into the page of its bento.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant import systems
from pliant.serving.launch import QUIET
from pliant.serving.settings import settings_of
from pliant.settings import EnvironmentSettings, FlowSettings, variable

PLACEHOLDER = "SYSTEM"  # in a default that differs between systems by their names alone
LIBRARIES: Mapping[str, str] = {
    "BENTOML_HOME": "Folder of bentos and counters; services that run at once need one each.",
    "BENTOML_PORT": "Port of the service (3000).",
    "MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN": "Login at the registry.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Collector of traces.",
    "CUDA_VISIBLE_DEVICES": "GPUs that a service may use.",
}
"""Variable of a library that matters to a service -> what it does."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: `systems` that have it, its `default` as the variable writes it, its `meaning`."""

    variable: str
    default: str
    systems: tuple[str, ...]
    meaning: str


def rows(names: Sequence[str] = ()) -> list[Row]:
    """Return the settings of these systems, or of all: those of every system first, in the order of their classes.

    A setting of the same name that differs in default or meaning has several rows. Raises `InputError` for a field without
    a docstring.
    """
    names = names or systems.names()
    having: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        for row in _rows_of(settings_of(name), name):
            having.setdefault(row, []).append(name)
    table = [Row(variable, default, tuple(owners), meaning) for (variable, default, meaning), owners in having.items()]
    return sorted(table, key=lambda row: len(row.systems) < len(names))


def _rows_of(kind: type[EnvironmentSettings], system: str) -> Iterator[tuple[str, str, str]]:
    for name, field in kind.model_fields.items():
        default = re.sub(rf"\b{system}\b", PLACEHOLDER, _text(field.default))
        yield variable(name), default, _meaning(kind.meaning(name), kind.choices(name))


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(text: str, choices: Collection[str]) -> str:
    if not choices:
        return text
    listed = [f"`{choice}`" for choice in choices]
    return f"{text.removesuffix('.')}: {', '.join(listed[:-1])} or {listed[-1]}."


def tables(settings: Sequence[Row], known: Collection[str]) -> str:
    """Return a table in Markdown for each group of systems that have the same settings, those of every system first."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in settings:
        groups.setdefault(row.systems, []).append(row)
    titles = {owners: "Every system" if len(owners) == len(known) else ", ".join(owners) for owners in groups}
    ordered = sorted(groups, key=lambda owners: -len(owners))
    return "\n\n".join(f"### {titles[owners]}\n\n{table(groups[owners])}" for owners in ordered)


def table(settings: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [["variable", "default", "meaning"], ["---"] * 3]
    for row in settings:
        default = f"`{row.default}`" if row.default else ""
        lines.append([f"`{row.variable}`", default, row.meaning.replace("|", "\\|")])
    return _lines(lines)


def flows_table() -> str:
    """Return what flows and commands read, as a table in Markdown."""
    return table([Row(name, default, (), text) for name, default, text in _rows_of(FlowSettings, PLACEHOLDER)])


def libraries_table() -> str:
    """Return the libraries' variables that matter."""
    lines = [[", ".join(f"`{name}`" for name in names.split(", ")), text] for names, text in LIBRARIES.items()]
    return _lines([["variable", "meaning"], ["---", "---"], *lines])


def quiet_list() -> str:
    """Return the libraries' variables that a service sets itself, where they are not set."""
    return ", ".join(f"`{name}={value}`" for name, value in QUIET.items())


def _lines(cells: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
