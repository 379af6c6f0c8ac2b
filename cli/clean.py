"""`pliant clean`: shows what is no longer needed on disk and in the registry, and removes it where that is asked for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant import systems
from pliant.cli import options

if TYPE_CHECKING:
    from pliant.flows.retention import Item

SHOWN = 40  # lines
LIMITS = ("keep_versions", "keep_days", "store_gib")


def add_options(parser: ArgumentParser) -> None:
    """Add the options of `pliant clean`."""
    from pliant.settings import FlowSettings

    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(systems.names())} (default: all)")
    parser.add_argument("--delete", action="store_true", help="remove what is listed; without it nothing is removed")
    options.settings(parser, FlowSettings, LIMITS)


def run(args: Namespace) -> int:
    """Show, and remove if asked for. Returns 1 if something could not be removed."""
    from pliant.flows import retention, settings
    from pliant.flows.progress import stage
    from pliant.settings import FlowSettings

    names = [systems.system(name).name for name in args.systems] or systems.names()
    project = settings.read()
    settings.prepare(project)
    limits = FlowSettings.read().replace(**options.given(args, LIMITS))
    with stage("what is no longer needed"):
        items = retention.survey(project, limits, names)
    _show(items)
    if not items or not args.delete:
        return 0
    with stage("removing") as progress:
        failed = retention.remove(items, progress)
    print(f"Removed {len(items) - failed} of {len(items)}.")
    return 1 if failed else 0


def _show(items: Sequence[Item]) -> None:
    for item in items[:SHOWN]:
        print(f"{item.size / 1e6:10.1f} MB  {item.what}: {item.reason}")
    if len(items) > SHOWN:
        print(f"... and {len(items) - SHOWN} more")
    total = sum(item.size for item in items) / 1e6
    print(f"No longer needed: {len(items)}, {total:.1f} MB." if items else "Everything is needed.")
