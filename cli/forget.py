"""`pliant forget`: removes what a service kept of what people wrote or sent, of some answers or of all."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pliant import systems
from pliant.errors import InputError
from pliant.outcomes.files import INPUTS, folder_of, forget, input_ids


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "remove the texts or pictures that a service kept (PLIANT_KEEP_INPUTS), also while it runs"
    more = "They are overwritten. What a running service got within the last second is still written: call it again."
    parser = commands.add_parser("forget", help=text, description=f"{text.capitalize()}. {more}")
    parser.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    text = "id of an answer, given by the service or chosen by a client; may be repeated"
    parser.add_argument("--id", action="append", default=[], metavar="ID", dest="ids", help=text)
    parser.add_argument("--all", action="store_true", help="remove those of all answers")
    parser.set_defaults(run=run)


def run(args: Namespace) -> None:
    """Remove them, and say how many there were."""
    from flows import settings

    system = systems.system(args.system).name
    if bool(args.ids) == args.all:
        raise InputError("forget", "both --id and --all" if args.all else "no id", "given either --id ID or --all")
    folder = folder_of(settings.read().home_of(system), system)
    if not (folder / INPUTS).is_file():
        kept = (
            "a service keeps inputs only with PLIANT_KEEP_INPUTS=true; prompts of --observe lie in PLIANT_HOME/observed"
        )
        raise InputError("SYSTEM", system, f"one whose inputs are kept, and there is no {folder / INPUTS}: {kept}")
    count = forget(folder, None if args.all else _meant(folder, args.ids))
    print(f"{system}: removed {count} kept input{'s' * (count != 1)}.")


def _meant(folder: Path, ids: Iterable[str]) -> list[str]:
    """Return the kept ids that are meant: an id that a client chose is kept behind its tenant, and with a row's number."""
    endings = "|".join(map(re.escape, ids))
    chosen = re.compile(rf"(?:'.*':|\".*\":)?(?:{endings})(?:/\d+)?", re.DOTALL)
    return list(dict.fromkeys(id for id in input_ids(folder) if chosen.fullmatch(id)))
