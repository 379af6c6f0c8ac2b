"""Every option of `pliant serve SYSTEM` reaches the settings of its service."""

from __future__ import annotations

from argparse import Action, ArgumentParser
from pathlib import Path
from typing import Any

import pytest

import pliant.serving.launch
from pliant import systems
from pliant.cli.main import main
from pliant.serving.settings import settings_of

NO_SETTINGS = ("help", "port")  # of the command alone
VALUES = {int: 7, float: 0.25, Path: Path("somewhere/else"), None: "something"}
"""Type of an option -> a value that is no setting's default."""


def options(system: str) -> dict[str, Action]:
    """Return the options of the command that set something of the service, by the names of the settings."""
    parser = ArgumentParser()
    systems.system(system).part("cli", "options").serve(parser)
    return {action.dest: action for action in parser._actions if action.dest not in NO_SETTINGS}


def chosen(action: Action, default: Any) -> Any:
    """Return a value other than the default that the option can take."""
    if action.nargs == 0:
        return not default
    return next(choice for choice in action.choices if choice != default) if action.choices else VALUES[action.type]


@pytest.mark.parametrize("system", systems.names())
def test_every_option_reaches_the_settings_of_the_service(system, here, monkeypatch):
    started = []
    monkeypatch.setattr(pliant.serving.launch, "serve", lambda settings, *_rest: started.append(settings) or 0)
    kind = settings_of(system)
    values = {name: chosen(action, getattr(kind(), name)) for name, action in options(system).items()}
    words = []
    for name, action in options(system).items():
        words += [action.option_strings[0]] if action.nargs == 0 else [action.option_strings[0], str(values[name])]
    assert main(["serve", system, *words]) == 0
    (settings,) = started
    assert type(settings) is kind
    assert {name: getattr(settings, name) for name in values} == values
    assert all(value != getattr(kind(), name) for name, value in values.items())
