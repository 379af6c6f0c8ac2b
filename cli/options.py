"""Options that the commands of several systems have."""

from __future__ import annotations

import json
from argparse import Action, ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pliant.flows.settings import Settings as Project
    from pliant.serving.settings import Settings
    from pliant.settings import EnvironmentSettings

S = TypeVar("S", bound="Settings")

DEVICE = "auto (the GPU where there is one, else the CPU), cpu, cuda, cuda:1, ... (default: auto)"


OTHER_DEVICE = "replace the champion also where it was measured on another class of device"


def profiling(parser: ArgumentParser) -> None:
    """Add the options of `pliant profile`."""
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch on a CPU (default: 1)")
    parser.add_argument("--other-device", action="store_true", help=OTHER_DEVICE)


def settings(parser: ArgumentParser, kind: type[EnvironmentSettings], names: Collection[str] = ()) -> None:
    """Add an option for each of these settings, or for all: its help is the setting's docstring. They hold no default."""
    for name, field in kind.model_fields.items():
        option = kind.option(name)
        if not option.name or (names and name not in names):
            continue
        choices, text = kind.choices(name), kind.meaning(name)
        if isinstance(choices, Mapping):
            text += "".join(f" {choice}: {meaning};" for choice, meaning in choices.items()).rstrip(";") + "."
        if field.default not in (None, ""):
            text += f" (default: {field.default})"
        more: dict[str, Any] = {"dest": name, "default": None, "help": text.replace("%", "%%")}
        if field.annotation is bool:
            more["action"] = BooleanOptionalAction
        else:
            more |= {"metavar": None if choices else "VALUE", "choices": tuple(choices) or None}
        if option.repeated:
            more["action"] = Listed
        parser.add_argument(option.name, **more)


def training(parser: ArgumentParser, addresses: str) -> None:
    """Add the options of every flow. `addresses`: forms of addresses of data that a system can be trained on."""
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with the flow's settings, or a preset (docs/SYSTEM.md)"
    )
    text = f"data set, once for each task: {addresses}"
    parser.add_argument("--data", action="append", metavar="[NAME=]ADDRESS", help=text)
    parser.add_argument("--device", help=DEVICE)
    parser.add_argument("--other-device", action="store_true", default=None, help=OTHER_DEVICE)
    text = "take at most so many examples of each task, for a first try (default: all)"
    parser.add_argument("--limit", type=int, metavar="N", help=text)
    text = "allow a task that the live release lacks (one that FILE names is allowed anyway)"
    parser.add_argument("--new-task", action="store_true", help=text)


def keys_file(parser: ArgumentParser) -> None:
    text = "file of keys (default: PLIANT_KEYS_FILE, or else keys.json in PLIANT_HOME)"
    parser.add_argument("--keys", dest="keys_file", type=Path, metavar="FILE", help=text)


class Listed(Action):
    """Joins the values of an option that is repeated by commas."""

    def __call__(self, _parser: object, namespace: Namespace, value: Any, _option: str | None = None) -> None:
        former = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{former},{value}" if former else value)


def simulated_workers(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="simulated devices (default: 1; not for `plan`)"
    )


def policy(parser: ArgumentParser, policies: Mapping[str, str], default: str | None = None) -> None:
    """Add `--policy`. `policies`: name -> what it does."""
    text = "; ".join(f"{name}: {what}" for name, what in policies.items())
    parser.add_argument("--policy", choices=tuple(policies), default=default, help=text)


def load(parser: ArgumentParser, columns: str) -> None:
    """Add `--load`, `--seed` and `--json`. `columns`: of a recorded trace."""
    recorded = f"trace:FILE (csv or parquet with the columns {columns}) or journal:FILE (of `pliant serve --journal`)"
    kinds = f"reference, poisson:RATE:SECONDS, bursty:RATE:SECONDS, {recorded} (default: reference)"
    parser.add_argument("--load", default="reference", help=kinds)
    text = "equal seeds draw equal loads (default: 0)"
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=text)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def show(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with all of its columns whole, however narrow the terminal is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headings, title=title, show_header=bool(headings))
    for row in rows:
        table.add_row(*row)
    needed = Console(width=10_000).measure(table).maximum
    Console(emoji=False, width=max(Console().width, needed)).print(table)


def print_json(value: Any) -> None:
    """Print plain values as JSON, figures that are unknown (NaN) as null."""
    print(json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None), indent=2))


def run_flow(args: Namespace) -> dict[str, Any]:
    """Run the flow of a system with the options that were given as overrides, and return its release as plain values."""
    from pliant.flows.run import run_flow

    overrides = given(
        args, [name for name in vars(args) if name not in ("system", "command", "run", "config", "new_task")]
    )
    return run_flow(args.system, args.config, overrides, args.new_task)


def given(args: Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the options `names` that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}


def service_settings(project: Project, kind: type[S], **options: object) -> S:
    """Return a service's settings for the registry of `project`; `options` as in `serving/<system>/settings.py`.

    Raises `InputError` for an option that the system does not have.
    """
    registry = {"registry_uri": project.tracking_uri, "artifact_root": str(project.artifact_root), "home": project.home}
    return kind(**{"threads": 1, **options, **registry})  # type: ignore[arg-type]
