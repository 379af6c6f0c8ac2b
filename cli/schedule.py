"""`pliant schedule`: trains a system every night, with the configuration of what is served or of a file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from pliant import systems


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = (
        "train a system every night, with the configuration of the live release or of FILE; again: update the schedule"
    )
    parser: ArgumentParser = commands.add_parser("schedule", help=text, description=text)
    parser.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    text = "TOML file to train with, read anew every night (default: the configuration that made the live release)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)
    text = "when it runs (default: '0 3 * * *' for tokens, an hour later each for cascade, bins and packing)"
    parser.add_argument("--cron", metavar="CRON", help=text)
    parser.add_argument("--timezone", metavar="ZONE", default="UTC", help="time zone of --cron (default: UTC)")
    parser.set_defaults(run=run)


def run(args: Namespace) -> None:
    from pliant.flows import settings

    system = systems.system(args.system).name
    project = settings.read()
    settings.prepare(project)
    from pliant.flows.watch.schedule import schedule

    for line in schedule(project, system, args.config, args.cron, args.timezone):
        print(line)
