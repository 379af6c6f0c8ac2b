"""`pliant watch` and `pliant schedule`: what services have noticed, and the nightly runs that learn from it.

`watch` reads the files that the services of this folder keep; it calls no service.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pliant import systems
from pliant.errors import InputError


def _schedule(args: Namespace) -> None:
    from pliant.flows import settings

    system = systems.system(args.system).name
    project = settings.prepare()
    from pliant.flows.watch.automations import schedule

    for line in schedule(project, system, args.config, args.cron, args.timezone):
        print(line)


EVENTS_SHOWN = 10
WIDEST = 0.5  # interval of an estimate that says anything
COLUMNS = ("stream", "state", "answers", "evidence", "alarm at", "what changed")


def command(commands: Any) -> None:
    """Add both commands to those of `pliant`."""
    text = (
        "train a system every night, with the configuration of the live release or of FILE; again: update the schedule"
    )
    schedule: ArgumentParser = commands.add_parser("schedule", help=text, description=text)
    schedule.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    text = "TOML file or preset to train with, read anew every night (default: the configuration that made the live release)"
    schedule.add_argument("--config", type=Path, metavar="FILE", help=text)
    text = "when it runs (default: '0 3 * * *' for tokens, an hour later each for cascade, bins and packing)"
    schedule.add_argument("--cron", metavar="CRON", help=text)
    schedule.add_argument("--timezone", metavar="ZONE", default="UTC", help="time zone of --cron (default: UTC)")
    schedule.set_defaults(run=_schedule)
    text = "show what the services of this folder watch, what has changed, and the latest events"
    parser = commands.add_parser("watch", help=text, description=text)
    parser.set_defaults(run=run)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(systems.names())} (default: all)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    text = "take what has changed for usual from now on: the services forget their alarms and learn anew"
    parser.add_argument("--accept", action="store_true", help=text)
    parser.add_argument("--every", type=float, metavar="SECONDS", help="show it again every so often, until Ctrl-C")


def run(args: Namespace) -> int:
    """Show it. Returns 1 where an alarm stands, so that a script can ask."""
    from pliant.flows import settings

    names = [systems.system(name).name for name in args.systems] or list(systems.names())
    if args.every is not None and not 0.1 <= args.every < float("inf"):
        raise InputError("--every", args.every, "at least 0.1 seconds")
    project = settings.read()
    homes = {name: project.home_of(name) for name in names}
    if args.accept:
        return _accept(homes, args.systems)
    while True:
        states = {name: state for name, home in homes.items() if (state := read_state(home, name)) is not None}
        if args.json:
            print(json.dumps(states, indent=2), flush=True)
        else:
            _show(states, {project.home, *homes.values()})
        if args.every is None:
            return 1 if any(state["alarms"] for state in states.values()) else 0
        time.sleep(args.every)


def _accept(homes: Mapping[str, Path], named: Collection[str]) -> int:
    """Leave word for the services that what has changed is usual. Raises `InputError` where nothing is watched."""
    from pliant.serving.loop.watcher import accepted
    from pliant.serving.state_file import StateFile

    watched = {name: home for name, home in homes.items() if read_state(home, name) is not None}
    if missing := [name for name in named if name not in watched] or ([] if watched else ["all"]):
        raise InputError("SYSTEM", ", ".join(missing), "one whose service watches anything in this folder")
    for name, home in watched.items():
        accepted(StateFile(home / "watch" / f"{name}.json")).touch()
        print(f"{name}: what its service sees is usual from its next look on.")
    return 0


def read_state(home: Path, system: str) -> dict[str, Any] | None:
    """Return what a system's service last wrote of its watch; None where there is none, or it cannot be read."""
    try:
        state = json.loads((home / "watch" / f"{system}.json").read_text(encoding="utf-8"))
        return {key: state[key] for key in ("at", "release", "streams", "alarms", "estimated_accuracy")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def alarm_lines(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each alarm, and for each accuracy that is estimated without labels."""
    for alarm in state["alarms"]:
        yield f"changed since {alarm.get('at', '?')}: {alarm.get('sentence', alarm.get('stream', '?'))}"
    for task, estimate in state["estimated_accuracy"].items():
        low, high = estimate["low"], estimate["high"]
        known = f"{estimate['accuracy']:.1%} ({low:.1%} to {high:.1%})" if high - low <= WIDEST else "too few answers"
        yield f"estimated accuracy of {task}, without labels: {known}"


def _show(states: Mapping[str, Any], homes: Collection[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    from pliant.serving.events import latest_events

    console = Console()
    if not states:
        places = ", ".join(str(home / "watch") for home in sorted(homes))
        console.print(f"No service has watched anything here yet ({places}).")
    for name, state in states.items():
        table = Table(*COLUMNS, title=f"{name}, release {state['release']}, at {state['at']}")
        for row in state["streams"]:
            numbers = f"{row['evidence']:.3g}", f"{row['threshold']:.3g}"
            table.add_row(row["stream"], row["state"], f"{row['observations']:,}", *numbers, row["sentence"])
        console.print(table)
        for line in alarm_lines(state):
            console.print(line, highlight=False)
    events = [event for home in homes for event in latest_events(home, EVENTS_SHOWN)]
    for event in sorted(events, key=lambda event: event.occurred)[-EVENTS_SHOWN:]:
        reason = event.payload.get("reason", "")
        console.print(f"{event.occurred[:19]} {event.name} of {event.system}: {reason}", highlight=False)
