"""`pliant clean` and `pliant forget`: remove what is no longer needed, and what a service kept of what people sent."""

from __future__ import annotations

import json
import math
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pliant import labelling, systems
from pliant.cli import options
from pliant.errors import InputError
from pliant.outcomes.files import INPUTS, OBSERVED, KeptInput, folder_of, forget, forget_prompts, input_ids, read_inputs

SHOWN = 40  # lines
LIMITS = ("keep_versions", "keep_days", "store_gib")


def _clean_options(parser: ArgumentParser) -> None:
    from pliant.settings import FlowSettings

    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(systems.names())} (default: all)")
    parser.add_argument("--delete", action="store_true", help="remove what is listed; without it nothing is removed")
    options.settings(parser, FlowSettings, LIMITS)


def _clean(args: Namespace) -> int:
    """Show, and remove if asked for. Returns 1 if something could not be removed."""
    from pliant.flows import retention, settings
    from pliant.flows.progress import stage
    from pliant.settings import FlowSettings

    names = [systems.system(name).name for name in args.systems] or systems.names()
    project = settings.prepare()
    limits = FlowSettings.read().replace(**options.given(args, LIMITS))
    with stage("what is no longer needed"):
        items = retention.survey(project, limits, names)
    for item in items[:SHOWN]:
        print(f"{item.size / 1e6:10.1f} MB  {item.what}: {item.reason}")
    if len(items) > SHOWN:
        print(f"... and {len(items) - SHOWN} more")
    total = sum(item.size for item in items) / 1e6
    print(f"No longer needed: {len(items)}, {total:.1f} MB." if items else "Everything is needed.")
    if not items or not args.delete:
        return 0
    with stage("removing") as progress:
        failed = retention.remove(items, progress)
    print(f"Removed {len(items) - failed} of {len(items)}.")
    return 1 if failed else 0


def command(commands: Any) -> None:
    """Add both commands to those of `pliant`."""
    text = "show what is no longer needed on disk and in the registry, and remove it with --delete"
    commands.add_parser("clean", help=text, description=text, fill=_clean_options).set_defaults(run=_clean)
    text = "remove the texts or pictures that a service kept (PLIANT_KEEP_INPUTS, PLIANT_OBSERVE), also while it runs"
    more = "They are overwritten. What a running service got within the last second is still written: call it again."
    parser = commands.add_parser("forget", help=text, description=f"{text[0].upper()}{text[1:]}. {more}")
    parser.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    text = "id of an answer, given by the service or chosen by a client; may be repeated"
    parser.add_argument("--id", action="append", default=[], metavar="ID", dest="ids", help=text)
    parser.add_argument("--tenant", metavar="NAME", help="remove the prompts that this tenant sent (packing)")
    parser.add_argument("--days", type=float, metavar="N", help="remove those that are older than N days")
    parser.add_argument("--all", action="store_true", help="remove those of all answers")
    parser.set_defaults(run=run)


def run(args: Namespace) -> None:
    """Remove them, and say how many there were."""
    from pliant.flows import settings

    system = systems.system(args.system).name
    given = [("--id", bool(args.ids)), ("--tenant", args.tenant is not None), ("--days", args.days is not None)]
    named = [name for name, is_given in (*given, ("--all", args.all)) if is_given]
    if len(named) != 1:
        wanted = "given one of --id ID, --tenant NAME, --days N and --all"
        raise InputError("forget", " and ".join(named) or "no id", wanted)
    before = math.inf if args.days is None else time.time() - 86_400 * args.days
    home = settings.read().home_of(system)
    if system == "packing":
        folder, ids = home / OBSERVED, {id.removeprefix("chatcmpl-").removeprefix("cmpl-") for id in args.ids}
        if not folder.is_dir():
            raise InputError("SYSTEM", "packing", f"one that was started with --observe, and there is no {folder}")

        def meant(line: Mapping[str, Any]) -> bool:
            if args.tenant is not None:
                return bool(line.get("tenant") == args.tenant)
            return line.get("id") in ids if ids else line.get("time", 0.0) < before

        count, what = forget_prompts(folder, meant), "observed prompt"
    else:
        folder = folder_of(home, system)
        if not (folder / INPUTS).is_file():
            kept = "a service keeps inputs only with PLIANT_KEEP_INPUTS=true"
            raise InputError("SYSTEM", system, f"one whose inputs are kept, and there is no {folder / INPUTS}: {kept}")
        if args.tenant is not None:
            raise InputError("--tenant", args.tenant, "left out, as inputs are kept without the tenant that sent them")
        meant_ids = _meant(folder, args.ids) if args.ids else None
        texts = {
            text for each in read_inputs(folder, meant_ids) if each.at < before and (text := _text(each)) is not None
        }
        count, what = forget(folder, meant_ids, before), "kept input"
        labelling.forget(labelling.folder_of(home), texts)  # a flow may have asked for their labels
    print(f"{system}: removed {count} {what}{'s' * (count != 1)}.")


def _text(kept: KeptInput) -> labelling.Text | None:
    """Return the text, or the pair, that was sent; None where it was something else."""
    try:
        first, *second = json.loads(kept.content)
    except (ValueError, TypeError):
        return None
    text = (first, second[0] if second else None)
    return text if all(isinstance(part, str | None) for part in text) else None


def _meant(folder: Path, ids: Iterable[str]) -> list[str]:
    """Return the kept ids that are meant: an id that a client chose is kept behind its tenant, and with a row's number."""
    endings = "|".join(map(re.escape, ids))
    chosen = re.compile(rf"(?:'.*':|\".*\":)?(?:{endings})(?:/\d+)?", re.DOTALL)
    return list(dict.fromkeys(id for id in input_ids(folder) if chosen.fullmatch(id)))
