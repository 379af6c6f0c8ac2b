"""`pliant status`, `log`, `promote`, `rollback`, `allow`, `rebuild`: what is served, how it was made, decisions by hand."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pliant import systems
from pliant.cli.watch import alarm_lines, read_state
from pliant.errors import InputError

if TYPE_CHECKING:
    from pliant.flows.status import SystemStatus
    from pliant.registry.decisions import Decision
    from pliant.registry.mlflow_store import MlflowRegistry

DELIVER_SECONDS = 3.0
METRICS_SHOWN = 6  # of a model
PROMISED = "promised_"  # what metrics begin with that are held to later
TRAINING = ("encoder_seconds", "generator_seconds")  # metrics that say nothing of serving
SHORT = 12  # characters of a digest
BY_HAND = "promoted by hand"


def commands(parsers: Any) -> None:
    """Add the commands to those of `pliant`."""
    text = "show what is served and since when, what is tried, what was promised, what was noticed, and the last runs"
    status = parsers.add_parser("status", help=text, description=text)
    status.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(systems.names())} (default: all)")
    status.add_argument("--json", action="store_true", help="print it as JSON")
    status.set_defaults(run=_status)
    text = "serve a release from now on, such as a challenger that the gate refused, or one that was taken back"
    promote = parsers.add_parser("promote", help=text, description=text)
    _changing(promote)
    promote.add_argument("version", metavar="VERSION", help="number of the release, as `pliant status` shows it")
    promote.set_defaults(run=_promote)
    text = "serve the release before the present one again, at once; nothing that was published is removed"
    without = "where there is none before it, nothing changes and the status is 2"
    rollback = parsers.add_parser("rollback", help=text, description=f"{text}; {without}")
    _changing(rollback)
    rollback.add_argument("--to", metavar="VERSION", help="number of another earlier release (default: the one before)")
    rollback.set_defaults(run=_rollback)
    text = "let what was taken back be released or tried again: until then no run of a flow does so"
    allow = parsers.add_parser("allow", help=text, description=text)
    _changing(allow)
    allow.add_argument("version", metavar="VERSION", help="number of the release, as `pliant log` shows it")
    allow.set_defaults(run=_allow)
    text = "make a release's artifacts again from what its run has kept, publish nothing, and say whether they are the same"
    rebuild = parsers.add_parser(
        "rebuild", help=text, description=f"{text}; status 1 where a difference has no explanation"
    )
    rebuild.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    rebuild.add_argument("version", metavar="VERSION", help="number of the release, as `pliant status` shows it")
    rebuild.set_defaults(run=_rebuild)
    text = "list what was decided of a system's releases: when, by whom, why and from where"
    log = parsers.add_parser("log", help=text, description=text)
    log.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    log.add_argument("--json", action="store_true", help="print it as JSON")
    log.set_defaults(run=_log)


def _changing(parser: ArgumentParser) -> None:
    parser.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    text = "sentence for those who look at the registry later (default: by hand)"
    parser.add_argument("--reason", metavar="TEXT", default="", help=text)


def _status(args: Namespace) -> None:
    from pliant.flows import settings
    from pliant.flows.status import status

    names = [systems.system(name).name for name in args.systems] or list(systems.names())
    project = settings.prepare()
    statuses = [status(project, name) for name in names]
    watched = {name: read_state(project.home_of(name), name) for name in names}
    if args.json:
        print(json.dumps([{**each.to_dict(), "watch": watched[each.system]} for each in statuses], indent=2))
        return
    for number, each in enumerate(statuses):
        state = watched[each.system]
        drift = [f"  {line}" for line in alarm_lines(state)] if state and each.live else []
        print("\n" * (number > 0) + "\n".join([*_lines(each), *drift]))


def _promote(args: Namespace) -> None:
    number = _number("VERSION", args.version)
    _switch(args, lambda _registry, _system: number, args.reason or BY_HAND)


def _rollback(args: Namespace) -> None:
    from pliant.registry.mlflow_switch import TAKEN_BACK, former_of

    def number(registry: MlflowRegistry, system: str) -> int:
        if args.to is None:
            return former_of(registry, system)
        wanted, present = _number("--to", args.to), registry.release(system)
        if present is not None and wanted > present.number:
            limit = f"an earlier release than {present.number}, which is served: `pliant promote` goes forward"
            raise InputError("--to", wanted, limit)
        return wanted

    _switch(args, number, args.reason or "taken back by hand", TAKEN_BACK)


def _allow(args: Namespace) -> None:
    from pliant.registry import mlflow_switch

    system, registry = _opened(args)
    allowed = mlflow_switch.allow(registry, system, _number("VERSION", args.version), args.reason or "allowed by hand")
    print(f"{system}: what release {allowed.number} consists of may be released and tried again.")


def _log(args: Namespace) -> None:
    from pliant.registry import decisions

    system, registry = _opened(args)
    entries = decisions.read(registry, system)
    if args.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    for entry in entries:
        print(f"{_time(entry.at)}  {_decided(entry)}")
    if not entries:
        print(f"{system}: nothing was decided yet.")


def _rebuild(args: Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    system, _ = _opened(args)
    from pliant.flows import settings
    from pliant.flows.rebuild import UNEXPLAINED, rebuild

    rows = rebuild(settings.read(), system, _number("VERSION", args.version))
    table = Table("stage", "published as", "digest then", "digest now", "")
    for row in rows:
        table.add_row(row.folder, ", ".join(row.models), row.then[:SHORT], row.now[:SHORT] or "-", row.why)
    Console().print(table)
    return int(any(row.why == UNEXPLAINED for row in rows))


def _opened(args: Namespace) -> tuple[str, MlflowRegistry]:
    """Return the system that a command names, and its registry, which has releases."""
    from pliant.flows import settings
    from pliant.flows.release import open_registry

    system = systems.system(args.system).name
    registry = open_registry(settings.prepare(), system)
    if not registry.exists():
        raise InputError("SYSTEM", system, f"one with a release: run `pliant train {system}` first")
    return system, registry


def _switch(
    args: Namespace, number: Callable[[MlflowRegistry, str], int], reason: str, state: str | None = None
) -> None:
    from pliant.flows import settings
    from pliant.registry.mlflow_switch import switch
    from pliant.registry.releases import LEFT
    from pliant.serving.events import CHAMPION, ROLLBACK, Event, EventOutbox, server_of

    system, registry = _opened(args)
    project = settings.read()
    left, served = switch(registry, system, number(registry, system), reason, state or LEFT)
    print(f"{system}: release {served.number} is served from now on, instead of release {left.number}.")
    for name in sorted({*left.versions, *served.versions}):
        old, new = (
            f"version {each[name]}" if name in each else "not served" for each in (left.versions, served.versions)
        )
        if old != new:
            print(f"  {name}: {old} -> {new}")
    outbox = EventOutbox(project.home, "command", server_of(os.environ))
    payload = {"release": served.number, "reason": reason}
    outbox.emit(Event(ROLLBACK if state else CHAMPION, system, payload))
    if not outbox.deliver(within=DELIVER_SECONDS):
        place = project.home / "outbox"
        print(f"pliant: Prefect's server does not answer; the event waits in {place}", file=sys.stderr)
    print("Services on this machine follow within a second or so, others at their next look at the registry.")


def _number(field: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(field, repr(text), "the number of a release, as `pliant status SYSTEM` shows it")
    return int(text)


def _lines(status: SystemStatus) -> list[str]:
    """Return the lines that describe a system."""
    if status.live is None:
        lines = [f"{status.system}: nothing is served yet; `pliant train {status.system}` makes a first release"]
        return lines + [f"  {line}" for line in _runs(status)]
    live = status.live
    lines = [f"{status.system}: release {live.number} is served{_since(live.since)}"]
    if status.decision or live.reason:
        lines.append(f"  why: {_decided(status.decision) if status.decision else live.reason}")
    lines += [f"  {name} version {number}" for name, number in sorted(live.versions.items())]
    lines += [f"  {name} version {number} is not in the registry any more" for name, number in status.gone.items()]
    for name, metrics in status.promises.items():
        promised = {measure: value for measure, value in metrics.items() if measure.startswith(PROMISED)}
        measured = {measure: value for measure, value in metrics.items() if measure not in (*promised, *TRAINING)}
        for word, figures in (("promised by", promised), ("measured for", measured)):
            shown = ", ".join(f"{measure} {value:.4g}" for measure, value in list(figures.items())[:METRICS_SHOWN])
            more = f" and {len(figures) - METRICS_SHOWN} more" if len(figures) > METRICS_SHOWN else ""
            lines += [f"  {word} {name}: {shown}{more}"] if figures else []
    lines += [f"  {line}" for line in _others(status) + _runs(status)]
    return lines


def _decided(entry: Decision) -> str:
    return f"release {entry.release} {entry.what}, by {entry.who} from {entry.where}: {entry.why}"


def _others(status: SystemStatus) -> list[str]:
    named = {number: alias for alias, number in status.aliases.items()} | {
        number: alias for alias, number in status.trials.items()
    }
    lines = []
    for release in status.releases:
        if status.live is not None and release.number != status.live.number:
            word = named.get(release.number, "")
            words = ", ".join(dict.fromkeys(part for part in (word, release.state) if part)) or "former"
            why = f": {release.reason}" if release.reason else ""
            lines.append(f"release {release.number} ({words}){_since(release.since)}{why}")
    return lines


def _runs(status: SystemStatus) -> list[str]:
    lines = []
    for run in status.runs:
        length = "" if run.seconds is None else f" after {run.seconds:.0f} s"
        why = f", because {run.reason}" if run.reason else ""
        lines.append(f"run {run.name}, started {_time(run.started)}: {run.status.lower()}{length}{why}")
    return lines


def _since(text: str) -> str:
    return f" since {_time(text)}" if text else ""


def _time(text: str) -> str:
    """Return an ISO time as people read it, with its age; another text as it is."""
    try:
        at = datetime.fromisoformat(text)
        age = (datetime.now(UTC) - at).total_seconds()
    except (ValueError, TypeError):
        return text
    units = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next((unit for unit in units if age >= 2 * unit[0]), units[-1])
    return f"{at:%Y-%m-%d %H:%M} UTC ({max(0, age) / size:.0f} {unit} ago)"
