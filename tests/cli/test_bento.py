"""`pliant bento` prints the tag and the next command, writes what an image is made from, and refuses in one sentence."""

from __future__ import annotations

import subprocess

import pytest

from pliant.cli import bento
from pliant.cli.main import main
from pliant.errors import InputError
from tests.fixtures.commands import refused

BUILT = "pliant_tokens:abc"


@pytest.fixture
def builds(here, monkeypatch) -> list[list[str]]:
    """The commands of BentoML that would be run; each ends well."""
    commands = []

    def run(command, **_options):
        if command[0] == "git":
            return subprocess.CompletedProcess(command, 0, "1234" if "rev-parse" in command else "", "")
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, f"a line\n__tag__:{BUILT}\n", "")

    monkeypatch.setattr(bento.subprocess, "run", run)
    return commands


def test_it_builds_by_the_file_of_the_system_and_says_what_to_do_next(builds, capsys):
    assert main(["bento", "tokens"]) == 0
    output = capsys.readouterr()
    assert output.out == f"{BUILT}\n"
    assert f"bentoml serve {BUILT}" in output.err and f"bentoml containerize {BUILT}" in output.err
    ((*_, option, file, _, _, label, commit),) = builds
    assert (option, file) == ("--bentofile", "deploy/bento/tokens.yaml")
    assert (label, commit) == ("--label", "commit=1234")


def test_without_a_checkout_nothing_can_be_built(monkeypatch, tmp_path):
    monkeypatch.setattr(bento.pliant.errors, "__file__", str(tmp_path / "pliant" / "errors.py"))
    with pytest.raises(InputError, match="a checkout, with deploy/bento"):
        bento.checkout()


def test_a_folder_with_files_or_an_unknown_system_is_refused_before_anything_is_built(builds, capsys, tmp_path):
    (tmp_path / "file").touch()
    assert "a new or an empty folder" in refused(["bento", "tokens", "--containerfile", str(tmp_path)], capsys)
    assert "one of tokens" in refused(["bento", "tokns"], capsys)
    assert builds == []
