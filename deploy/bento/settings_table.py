"""The table of all settings, read from their classes: variable, default, systems, and the meaning that the comment gives.

`python -m deploy.bento.build` writes it into docs/settings.md, and a system's part into the page of its bento.
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
from serving.launch import QUIET
from serving.settings import OTHERS, PREFIX, SYSTEM, Settings, settings_of

ALL = "all"
PLACEHOLDER = "SYSTEM"  # in a default that differs between systems by their names alone
OTHER_MEANINGS: Mapping[str, str] = {
    SYSTEM: "the system that the service must be; another one does not start",
    "PLIANT_PROJECT": "`pliant schedule`: the folder that nightly runs begin in (default: the working directory)",
    "PLIANT_KEEP_VERSIONS": "flows, `pliant clean`: newest versions of a model that stay, besides those with an alias (5)",
    "PLIANT_KEEP_DAYS": "flows, `pliant clean`: days that unused results of stages stay (90)",
    "PLIANT_STORE_GIB": "flows, `pliant clean`: GiB that the results of stages may take (20)",
    "PLIANT_ROLLOUT": "flows: `canary` has services try a challenger before it is served, `direct` does not (`direct`)",
    "PLIANT_FLOW_HOURS": "flows: hours after which a run is ended (6)",
    "PLIANT_TASK_HOURS": "flows: hours after which a task of a run is ended (3)",
    "PLIANT_ALARM_MINUTES": "flows: least minutes between two runs that alarms start (60)",
    "PLIANT_ALERT_WEBHOOK": "`pliant-notify`: address that notifications are sent to",
    "PLIANT_SIGNING_KEY": "flows, `pliant sign`: the private key that artifacts are signed with",
}
"""Variable that no service reads, though it may be in its environment -> who reads it."""
LIBRARIES: Mapping[str, str] = {
    "BENTOML_HOME": "BentoML's folder: bentos, and the counters of running services. BentoML empties the counters' folder "
    "when it starts, so two services that run at once need two of them (`bentoml serve` takes the folder of a bento, too)",
    "BENTOML_PORT": "port of the service (3000), as `--port`",
    "MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN": "for a registry that asks who calls",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "where traces go, if `PLIANT_TRACE_SHARE` is above 0",
    "CUDA_VISIBLE_DEVICES": "the GPUs that a service may use",
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
    return comment if all(choice in comment for choice in choices) else f"{comment}; {known}"


def table(settings: Sequence[Row], known: Collection[str]) -> str:
    """Return the rows as a table in Markdown; with several systems (`known`) it says which have the setting."""
    several = len(known) > 1
    head = ["variable", "default", *(["systems"] if several else []), "meaning"]
    lines = [head, ["---"] * len(head)]
    for row in settings:
        owners = ALL if len(row.systems) == len(known) else ", ".join(row.systems)
        default = f"`{row.default}`" if row.default else ""
        lines.append([f"`{row.variable}`", default, *([owners] if several else []), row.meaning.replace("|", "\\|")])
    return _lines(lines)


def others_table() -> str:
    """Return the variables that are no settings of a service. Raises `InputError` for one that is explained nowhere."""
    for name in OTHERS:
        if name not in OTHER_MEANINGS:
            raise InputError("variable", name, "explained in OTHER_MEANINGS of deploy/bento/settings_table.py")
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
