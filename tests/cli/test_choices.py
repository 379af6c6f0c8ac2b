"""Every value that a help text offers is taken by what the command hands it to."""

from __future__ import annotations

from argparse import _SubParsersAction
from collections.abc import Iterator

import pytest

from pliant import systems
from pliant.cli.bins import simulate as bins_simulation
from pliant.cli.main import Command, command_line
from pliant.cli.options import service_settings
from pliant.cli.packing import simulate as packing_simulation
from pliant.errors import InputError
from pliant.flows import settings
from pliant.packing.scheduling.policies import BY_NAME
from pliant.serving.http.access.keys import Keys, new_key
from pliant.serving.settings import settings_of
from pliant.tokens.policies import make
from pliant.tokens.scheduler import knowledge
from tests.fixtures.bins.scenarios import bins
from tests.fixtures.packing.scenarios import CONTEXT, packing
from tests.fixtures.tokens.samples import tiny_profile

Choice = tuple[str, str, str]
"""A command, its option, and one of the option's values."""


def parsers(parser: Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """Yield every command that has no commands of its own."""
    inner = [action for action in parser.filled()._actions if isinstance(action, _SubParsersAction)]
    if not inner:
        yield " ".join(words), parser
    for action in inner:
        for name, each in action.choices.items():
            yield from parsers(each, (*words, name))


def choices() -> list[Choice]:
    return [
        (command, (action.option_strings or [action.dest])[0], str(choice))
        for command, parser in parsers(command_line())
        for action in parser._actions
        for choice in action.choices or ()
    ]


def refused(command: str, option: str, choice: str) -> str | None:
    """Return what the command says against this value; None if it takes it. Fails for an option that nobody checks here."""
    verb, _, system = command.partition(" ")
    name = option.lstrip("-").replace("-", "_")
    try:
        match verb, system, name:
            case "serve", _, _:
                kind = settings_of(system)
                assert name in kind.model_fields
                service_settings(settings.read({}), kind, **{name: choice})
                if (system, name) == ("packing", "policy"):
                    assert not BY_NAME[choice].needs_exact, "no service knows the lengths of its outputs"
            case "simulate" | "plan", "tokens", "policy":
                known = knowledge(tiny_profile("", "cpu", (-15, -4, 0, 4, 8)), [])
                make(choice, known)
            case "simulate" | "plan", "bins", "dispatch":  # said to be for devices that each hold a single runtime
                bins_simulation.compared([bins()], "poisson:20:0.2", choice, "single", 1, 0)
            case "simulate" | "plan", "bins", "placement":
                bins_simulation.compared([bins()], "poisson:20:0.2", bins_simulation.DEFAULT, choice, 1, 0)
            case "simulate" | "plan", "bins", "policy":
                shared = bins(placement="shared")
                bins_simulation.compared([shared], "poisson:20:0.2", bins_simulation.DEFAULT, None, 1, 0, choice)
            case "simulate" | "plan", "packing", "policy":
                prompts = packing_simulation.requests_of("poisson:20:0.2", packing(), CONTEXT, 0)
                packing_simulation.compared(packing(), CONTEXT, prompts, choice)
            case "profile", "packing", "engine":
                service_settings(settings.read({}), settings_of("packing"), engine=choice)
            case "journal", _, "system":
                systems.system(choice)
            case "keys", "add", "role":
                new_key("somebody", (choice,), "", Keys())
            case _:
                pytest.fail(f"nothing here says whether `pliant {command}` takes {option} {choice}")
    except InputError as error:
        return str(error)
    return None


def test_a_command_takes_every_value_that_its_help_offers():
    offered = choices()
    assert ("serve packing", "--policy", "s3") in offered and ("simulate packing", "--policy", "oracle") in offered
    against = {choice: said for choice in offered if (said := refused(*choice))}
    assert against == {}
