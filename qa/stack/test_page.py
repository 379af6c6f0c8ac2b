"""Commands of a page run in one shell until one fails or hangs, and what they leave in the background ends with it."""

from __future__ import annotations

import os

import psutil
import pytest

from pliant.errors import PliantError
from qa.stack.commands import MOST, PAGE, SECTION, clean_environment
from qa.stack.page import Shell, commands

TEXT = "## A\ntext\n```\nls\ncd x\n```\n### Others\n\n```\nrm c\n```\n## None\n"


@pytest.fixture
def shell(tmp_path):
    given = Shell(os.environ, tmp_path)
    yield given
    given.stop()


def test_the_commands_below_a_heading_are_those_of_its_block_alone():
    assert commands(TEXT, "A") == ["ls", "cd x"] and commands(TEXT, "Others") == ["rm c"]
    assert 0 < len(commands(PAGE.read_text(), SECTION)) <= MOST
    for heading in ("None", "Nowhere"):
        with pytest.raises(PliantError, match="no commands"):
            commands(TEXT, heading)


def test_commands_share_one_shell_and_an_answer_may_end_without_a_new_line(shell, tmp_path):
    for command in ("mkdir inside", "cd inside", "key=$(echo secret)", 'printf "$key in $PWD"'):
        shell.run(command)
    assert shell.output == [f"secret in {tmp_path}/inside"]


@pytest.mark.parametrize(
    ("command", "seconds", "said"),
    [
        ("echo no room >&2; exit 3", 60.0, "no room"),
        ("sleep 1000", 1.0, "not ended"),
        ("ls /nowhere | cat", 60.0, "ls"),
    ],
)
def test_a_command_that_fails_or_hangs_is_named_with_what_it_printed(shell, command, seconds, said):
    with pytest.raises(PliantError, match=said):
        shell.run(command, seconds)


def test_what_commands_leave_in_the_background_ends_with_the_shell(shell):
    shell.run("sleep 1000 &")
    shell.run("echo $!")
    process = psutil.Process(int(shell.output[0]))
    shell.stop()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_the_environment_has_nothing_of_pliants(tmp_path):
    ours = {"VIRTUAL_ENV": "/venv", "PLIANT_HOME": "x", "PYTHONPATH": "y", "MLFLOW_TRACKING_URI": "z"}
    seen = clean_environment(tmp_path, {"PATH": "/venv/bin:/usr/bin", "LANG": "C", **ours})
    assert seen == {"PATH": "/usr/bin", "LANG": "C", "BENTOML_HOME": str(tmp_path / "bentoml")}
