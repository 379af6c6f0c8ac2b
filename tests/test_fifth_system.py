"""A fifth system is its folders and one entry in the list: the command line offers it, and its settings are its own."""

from __future__ import annotations

import os
import sys

import pytest

import pliant.cli
import pliant.flows
import pliant.serving
from pliant import systems
from pliant.cli.main import main
from pliant.registry.names import experiment, prefix
from pliant.serving.settings import settings_of
from pliant.systems import System
from tests.fixtures.places import ROOT

FIFTH = ROOT / "tests" / "fixtures" / "fifth"
ECHO = System("echo", "requests that are given back as they came")


@pytest.fixture(autouse=True)
def fifth(monkeypatch, tmp_path):
    """Its folders beside those of the others, and its entry in the list; afterwards nothing is left of it."""
    for stage in (pliant.cli, pliant.flows, pliant.serving):
        monkeypatch.setattr(stage, "__path__", [*stage.__path__, str(FIFTH / stage.__name__.rpartition(".")[2])])
    monkeypatch.setattr(systems, "listed", lambda: (*systems.SYSTEMS, ECHO))
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    for name in [name for name in sys.modules if ".echo" in name]:
        del sys.modules[name]
    for stage in (pliant.cli, pliant.flows, pliant.serving):
        vars(stage).pop("echo", None)


def shown(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["train", "profile", "serve", "simulate", "bench"])
def test_every_command_offers_it_with_its_summary(command, capsys):
    assert f"echo {ECHO.summary}" in shown([command, "--help"], capsys)


@pytest.mark.parametrize("command", ["train", "serve"])
def test_its_options_are_offered_with_those_of_every_system(command, capsys):
    text = shown([command, "echo", "--help"], capsys)
    assert "--loudness" in text and "--device" in text


def test_its_flow_is_run_with_its_options(capsys):
    assert main(["train", "echo", "--loudness", "2"]) == 0
    assert "loudness 2.0" in capsys.readouterr().out


def test_its_service_is_checked_with_its_own_settings_before_it_starts(capsys):
    assert main(["serve", "echo", "--port", "0", "--loudness", "7"]) == 2
    assert capsys.readouterr().err == "pliant: the registry holds no echo of loudness 7 for EchoSettings\n"


@pytest.mark.parametrize(
    ("command", "option", "having"),
    [
        ("serve echo", "--gamma", "tokens"),
        ("serve tokens", "--loudness", "echo"),
        ("train bins", "--observed", "packing"),
        ("simulate packing", "--candidate", "cascade"),
    ],
)
def test_an_option_of_another_system_is_refused_with_a_sentence(command, option, having, capsys):
    assert main([*command.split(), option, "3"]) == 2
    sentence = f"option is {option}, but must be one of `pliant {command}`; it is an option of {having}"
    assert capsys.readouterr().err == f"pliant: {sentence}\n"


def test_its_variables_reach_its_service_and_its_options_go_before_them(monkeypatch, capsys):
    monkeypatch.setenv("PLIANT_LOUDNESS", "5")
    assert main(["serve", "echo", "--port", "0"]) == 2
    assert "loudness 5" in capsys.readouterr().err
    assert main(["serve", "echo", "--port", "0", "--loudness", "7"]) == 2
    assert "loudness 7" in capsys.readouterr().err
    monkeypatch.setenv("PLIANT_GAMMA", "5")
    assert main(["serve", "echo", "--port", "0"]) == 2
    assert "PLIANT_GAMMA, but must be one of echo's; it is an option of tokens" in capsys.readouterr().err


def test_its_settings_and_its_names_in_the_registry_are_its_own():
    assert settings_of("echo")().system == "echo"
    assert (experiment("echo"), prefix("echo")) == ("pliant-echo", "pliant-echo-")
