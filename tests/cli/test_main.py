"""The command line: what it offers, and that every mistake is one sentence and exit status 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.commands import refused

PORT = {"serve": ["--port", "0"]}


def test_a_demo_of_an_unknown_system_is_one_sentence_before_anything_starts(here, capsys):
    said = refused(["demo", "tokens", "chess"], capsys)
    assert said == "pliant: SYSTEM is chess, but must be one of tokens, bins, cascade, packing"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("command", ["simulate", "profile", "serve"])
@pytest.mark.parametrize("system", ["tokens", "cascade"])
def test_without_a_registry_a_command_says_what_to_run_and_makes_no_database(command, system, here, capsys):
    assert "run `pliant train" in refused([command, system, *PORT.get(command, [])], capsys)
    assert not list(here.rglob("*.db"))


@pytest.mark.parametrize("command", ["profile", "serve"])
@pytest.mark.parametrize("device", ["abacus", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(command, device, published, capsys):
    assert f"device is {device}" in refused([command, "tokens", "--device", device, *PORT.get(command, [])], capsys)


def test_the_installed_command_ends_with_the_status_and_without_a_traceback(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "pliant", "simulate", "tokens", "--workers", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "pliant: workers is 0, but must be at least 1\n"


@pytest.fixture(scope="module")
def registry_folder(tmp_path_factory) -> Path:
    from pliant.device import device_class
    from tests.fixtures.tokens.published import publish_all

    folder = tmp_path_factory.mktemp("registry")
    publish_all(folder, device_class("cpu"))
    return folder


@pytest.fixture
def published(here, registry_folder) -> Path:
    """The empty working directory, and a registry with a champion elsewhere."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{registry_folder / 'mlflow.db'}"
    return here
