"""`pliant init SYSTEM`: writes the configuration that `pliant train SYSTEM --config` takes, by two answers.

What a system's configuration holds is in `cli/NAME/options.py`. It is written only after the flow's own reader has accepted
it and the data could be read.
"""

from __future__ import annotations

import json
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pliant import systems
from pliant.errors import InputError

AUTO = "auto"
KINDS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
EPILOG = "Give --model and --data, or answer the questions. Then: pliant train %s --config FILE, pliant serve %s"


def options(parser: ArgumentParser, system: systems.System) -> None:
    part = system.part("cli", "options")
    if not hasattr(part, "MODEL"):
        return
    parser.epilog = EPILOG.replace("%s", system.name)
    parser.add_argument("--model", metavar="ADDRESS", help=part.MODEL)
    parser.add_argument("--data", metavar="ADDRESS", help=part.DATA)
    text = f"file to write (default: {system.name}.toml)"
    parser.add_argument("--out", type=Path, default=Path(f"{system.name}.toml"), metavar="FILE", help=text)
    parser.add_argument("--force", action="store_true", help="overwrite FILE where it exists")


def run(args: Namespace) -> None:
    """Write the configuration. Raises `InputError` for a missing answer, an existing file, and what cannot be trained on."""
    system = systems.system(args.system)
    part = system.part("cli", "options")
    if args.out.exists() and not args.force:
        raise InputError("--out", args.out, "a file that does not exist yet, or --force to overwrite it")
    model = _answer("--model", args.model, part.MODEL, AUTO)
    data = _answer("--data", args.data, part.DATA, "")
    model = f"path:{model}" if Path(model).is_dir() else model  # a folder may be named by its path alone
    text = f"# pliant train {system.name} --config {args.out}\n{part.content(model, _data(data))}"
    part.check(system.part("flows", "config").read(tomllib.loads(text)))
    try:
        args.out.write_text(text)
    except OSError as error:
        raise InputError("--out", args.out, f"a file that can be written ({error.strerror})") from error
    print(f"Wrote {args.out}. Next: pliant train {system.name} --config {args.out}")


def quoted(value: str) -> str:
    """Return the value as a string of TOML."""
    return json.dumps(value, ensure_ascii=False)


def _answer(option: str, given: str | None, text: str, default: str) -> str:
    """Return what was given, or else what is answered on the terminal."""
    if given is None and sys.stdin.isatty():
        given = input(f"{option.removeprefix('--')} - {text}{f' [{default}]' if default else ''}: ").strip() or default
    if not given:
        raise InputError(option, "missing", "given where there is no terminal to ask on")
    return given


def _data(answer: str) -> str:
    """Return the address of data; a file or folder may be named by its path alone."""
    path = Path(answer)
    if path.is_dir():
        return f"folder:{answer}"
    return f"{KINDS[path.suffix]}:{answer}" if path.suffix in KINDS and ":" not in answer else answer
