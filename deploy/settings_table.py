"""The table of all settings, read from their classes: variable, default, systems, and the meaning that the comment gives.

`python -m deploy.bentos` writes it into docs/settings.md, and a system's part into the page of its bento.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from pliant import systems
from pliant.errors import InputError
from pliant.serving.launch import QUIET
from pliant.serving.settings import OTHERS, PREFIX, SYSTEM, Settings, settings_of

PLACEHOLDER = "SYSTEM"  # in a default that differs between systems by their names alone
OTHER_MEANINGS: Mapping[str, str] = {
    SYSTEM: "The system that the service must be.",
    "PLIANT_PROJECT": "`pliant schedule`: folder that nightly runs begin in.",
    "PLIANT_KEEP_VERSIONS": "Flows: newest versions of a model that stay, besides those with an alias (5).",
    "PLIANT_KEEP_DAYS": "Flows: days for which unused results of stages stay (90).",
    "PLIANT_STORE_GIB": "Flows: GiB that results of stages may take (20).",
    "PLIANT_ROLLOUT": "Flows: `canary` tries a challenger on real requests before it is promoted; default `direct`.",
    "PLIANT_FLOW_HOURS": "Flows: hours after which a run is ended (6).",
    "PLIANT_TASK_HOURS": "Flows: hours after which a task of a run is ended (3).",
    "PLIANT_ALARM_MINUTES": "Flows: minutes between two runs that alarms start (60).",
    "PLIANT_ALERT_WEBHOOK": "`pliant-notify`: address that notifications are posted to.",
    "PLIANT_SIGNING_KEY": "Flows, `pliant sign`: private key that signs artifacts.",
}
"""Variable that no service reads, though it may be in its environment -> who reads it."""
LIBRARIES: Mapping[str, str] = {
    "BENTOML_HOME": "Folder of bentos and counters; services that run at once need one each.",
    "BENTOML_PORT": "Port of the service (3000).",
    "MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN": "Login at the registry.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Collector of traces.",
    "CUDA_VISIBLE_DEVICES": "GPUs that a service may use.",
}
"""Variable of a library that matters to a service -> what it does."""
_CHOICES_ARE_IN = re.compile(r"^one of (\S+\.py|[A-Z]+)(, )?")  # a comment that names where the known values are listed


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
    a comment.
    """
    names = names or systems.names()
    having: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        for row in _rows_of(settings_of(name), name):
            having.setdefault(row, []).append(name)
    table = [Row(variable, default, tuple(owners), meaning) for (variable, default, meaning), owners in having.items()]
    return sorted(table, key=lambda row: len(row.systems) < len(names))


def _rows_of(kind: type[Settings], system: str) -> Iterator[tuple[str, str, str]]:
    comments = comments_of(kind)
    for field in fields(kind):
        if not comments.get(field.name):
            raise InputError("setting", field.name, f"explained by a comment behind its default, in {kind.__name__}")
        default = "" if field.default is MISSING else _text(field.default)
        meaning = _meaning(comments[field.name], {**Settings.CHOICES, **kind.CHOICES}.get(field.name, ()))
        yield PREFIX + field.name.upper(), re.sub(rf"\b{system}\b", PLACEHOLDER, default), meaning


def comments_of(kind: type[Settings]) -> dict[str, str]:
    """Return the comment on each field of the class; that of a subclass counts, if it has its own."""
    comments: dict[str, str] = {}
    for owner in reversed([owner for owner in kind.__mro__ if issubclass(owner, Settings)]):
        comments |= {name: text for name, text in _own_comments(textwrap.dedent(inspect.getsource(owner))) if text}
    return comments


def _own_comments(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each field and the comment on its lines; the empty text where there is none."""
    by_line = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(target=ast.Name(name), lineno=first, end_lineno=int(last)):
                yield name, " ".join(by_line[line] for line in range(first, last + 1) if line in by_line)


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(comment: str, choices: Collection[str]) -> str:
    if not choices:
        return comment
    listed = [f"`{choice}`" for choice in choices]
    known = f"{', '.join(listed[:-1])} or {listed[-1]}"
    if place := _CHOICES_ARE_IN.match(comment):
        rest = comment[place.end() :]
        return known + (f", {rest}" if rest else "")
    return comment if all(choice in comment for choice in choices) else f"{comment.removesuffix('.')}: {known}."


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


def others_table() -> str:
    """Return the variables that are no settings of a service. Raises `InputError` for one that is explained nowhere."""
    for name in OTHERS:
        if name not in OTHER_MEANINGS:
            raise InputError("variable", name, "explained in OTHER_MEANINGS of deploy/settings_table.py")
    ours = [[f"`{name}`", OTHER_MEANINGS[name]] for name in OTHERS]
    return _lines([["variable", "meaning"], ["---", "---"], *ours])


def libraries_table() -> str:
    """Return the libraries' variables that matter."""
    lines = [[", ".join(f"`{name}`" for name in names.split(", ")), text] for names, text in LIBRARIES.items()]
    return _lines([["variable", "meaning"], ["---", "---"], *lines])


def quiet_list() -> str:
    """Return the libraries' variables that a service sets itself, where they are not set."""
    return ", ".join(f"`{name}={value}`" for name, value in QUIET.items())


def _lines(cells: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
