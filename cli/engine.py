"""`pliant engine`: installs, lists and removes engines that live in an environment of their own.

A system that has such engines names them in `cli/SYSTEM/engines.py`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any

from pliant import systems


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "install an engine into an environment of its own, list those that are there, remove one"
    parsers = commands.add_parser("engine", help=text, description=text).add_subparsers(required=True, metavar="ACTION")
    engines = [(name, part) for part in _parts() for name in part.ENGINES]
    text = "install an engine and try it"
    pages = "\n\n".join(part.ENGINES[name] for name, part in engines)
    installing = parsers.add_parser(
        "install", help=text, description=pages, formatter_class=RawDescriptionHelpFormatter
    )
    _name(installing)
    text = "what it runs on; auto: cuda where NVIDIA's driver shows a GPU, else cpu (default: auto)"
    installing.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help=text)
    text = "interpreter to make the environment with, 3.11 to 3.14, by path or name (default: this command's)"
    installing.add_argument("--python", help=text)
    installing.set_defaults(run=_install)
    text = "list the engines, with their versions where they are installed"
    parsers.add_parser("list", help=text, description=text).set_defaults(run=_list)
    text = "remove an engine and what was downloaded for it; end first what runs with it"
    removing = parsers.add_parser("remove", help=text, description=text)
    _name(removing)
    removing.set_defaults(run=_remove)


def _parts() -> list[Any]:
    return [system.part("cli", "engines") for system in systems.SYSTEMS if system.has("cli", "engines")]


def _part(name: str) -> Any:
    return next(part for part in _parts() if name in part.ENGINES)


def _name(parser: ArgumentParser) -> None:
    names = [name for part in _parts() for name in part.ENGINES]
    parser.add_argument("engine", choices=names, metavar="ENGINE", help=", ".join(names))


def _install(args: Namespace) -> None:
    print(_part(args.engine).install(args.engine, args.device, args.python))


def _list(_args: Namespace) -> None:
    for part in _parts():
        for name in part.ENGINES:
            print(part.describe(name))


def _remove(args: Namespace) -> None:
    print(_part(args.engine).remove(args.engine))
