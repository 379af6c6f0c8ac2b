"""The commands that docs/deploy.md names for a first bento, and the script that follows them."""

from __future__ import annotations

import os
import re

import psutil
import pytest

from pliant.errors import PliantError
from qa.stack.commands import MOST, PAGE, Run, clean_environment, commands, script

PATIENCE = 60.0


@pytest.fixture
def run(tmp_path):
    runs = []

    def start(*lines: str) -> Run:
        runs.append(Run(lines, tmp_path, tmp_path / "repository", os.environ))
        return runs[-1]

    yield start
    for each in runs:
        each.stop()


def ignore(_done: int, _of: int) -> None:
    """Take a progress and show nothing."""


def test_the_page_names_at_most_ten_commands_and_each_line_is_a_single_one():
    lines = commands(PAGE.read_text())
    assert 0 < len(lines) <= MOST
    for line in lines:
        outside = re.sub(r"'[^']*'|\"[^\"]*\"|\$\([^)]*\)", "", line).removesuffix(" &")
        assert not re.search(r"[;&|]", outside), line


def test_a_page_without_the_section_is_refused():
    with pytest.raises(PliantError, match="no commands under the heading 'Nowhere'"):
        commands("## Somewhere\n```\nls\n```\n", "Nowhere")
    assert commands("## A\ntext\n```\nls\ncd x\n```\n## B\n```\nno\n```\n", "A") == ["ls", "cd x"]


def test_commands_share_one_shell_and_the_address_is_filled_in(run, tmp_path):
    steps = []
    given = run("mkdir inside", "cd inside", "key=$(echo secret)", "echo $key in $PWD of ADDRESS")
    given.finish(PATIENCE, lambda done, of: steps.append((done, of)))
    assert given.output == [f"secret in {tmp_path}/inside of {tmp_path}/repository"]
    assert all(of == 4 for _, of in steps)


def test_a_command_whose_output_ends_without_a_new_line_has_ended_all_the_same(run):
    given = run("printf answer")
    given.finish(PATIENCE, ignore)
    assert given.output == ["answer"]


def test_a_command_that_fails_is_named_with_what_it_printed_and_ends_the_run(run):
    given = run("true", "echo no room >&2; exit 3", "echo never")
    with pytest.raises(PliantError, match=r"command 2, .* failed: no room"):
        given.finish(PATIENCE, ignore)
    assert "never" not in given.output


def test_a_command_that_hangs_is_named(run):
    given = run("sleep 1000")
    with pytest.raises(PliantError, match=r"command 1, 'sleep 1000', has not ended within 1 s"):
        given.finish(1.0, ignore)


def test_what_commands_leave_in_the_background_ends_with_the_run(run):
    given = run("sleep 1000 &", "echo $!")
    given.finish(PATIENCE, ignore)
    identity = int(given.output[0])
    process = psutil.Process(identity)
    assert process.is_running()
    given.stop()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_the_environment_has_nothing_of_pliants(tmp_path):
    environment = {
        "PATH": "/venv/bin:/usr/bin",
        "VIRTUAL_ENV": "/venv",
        "PLIANT_HOME": "x",
        "PYTHONPATH": "y",
        "MLFLOW_TRACKING_URI": "z",
        "LANG": "C",
    }
    assert clean_environment(tmp_path, environment) == {
        "PATH": "/usr/bin",
        "LANG": "C",
        "BENTOML_HOME": str(tmp_path / "bentoml"),
    }


def test_the_script_is_one_that_bash_reads(tmp_path):
    assert script(["ls", "pwd"], tmp_path).splitlines() == [
        "set -e",
        r"printf '\n--- command 1\n'",
        "ls",
        r"printf '\n--- command 2\n'",
        "pwd",
        r"printf '\n--- command 3\n'",
        "wait",
    ]
