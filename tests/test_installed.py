"""What an installed Pliant does outside of its checkout, in a folder that has a user's own `serving` and `flows`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import setuptools

from pliant.version import VERSION
from tests.architecture import LINKED
from tests.fixtures.places import ROOT

pytestmark = pytest.mark.slow

FILES = ("pyproject.toml", "README.md", "LICENSE")
FOLDERS = ("pliant", *LINKED)
STAGES = (
    "from pliant.flows.closure import closure; from pliant.flows.tokens.stages import {0}; print(len(closure({0})))"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the folder of an unpacked wheel, which was built from a copy: setuptools leaves files beside the sources."""
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip(f"setuptools {setuptools.__version__} is older than 77, which builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns("__pycache__", "results")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=left_out)
    for name in FILES:
        shutil.copy(ROOT / name, folder / "source")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "-w", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", "-q", *options, str(folder / "source")]
    subprocess.run(command, check=True, timeout=300)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed, folder, *command):
    """Run Python with the unpacked wheel, in a folder that has a user's own `serving` and `flows`."""
    for name in ("serving", "flows"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('the folder of the user was imported')")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installed), "HOME": str(folder)}
    command = [sys.executable, *command]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("words", ["", "train tokens", "serve bins", "simulate cascade", "bench packing"])
def test_help_is_there_beside_a_users_own_folders(installed, tmp_path, words):
    done = run(installed, tmp_path, "-m", "pliant", *words.split(), "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: pliant"), done.stderr


def test_without_packages_it_names_the_first_that_is_missing_in_a_sentence(installed, tmp_path):
    done = run(installed, tmp_path, "-S", "-m", "pliant", "--help")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "pliant: numpy is not installed, which this needs: install Pliant with its dependencies\n"


def test_a_stage_finds_its_code_in_the_wheel(installed, tmp_path):
    done = run(installed, tmp_path, "-c", STAGES.format("make_task"))
    assert int(done.stdout) > 10, done.stderr


def test_the_wheel_is_typed_and_its_version_that_of_the_code(installed):
    assert (installed / "pliant/py.typed").is_file()
    assert (installed / f"pliant-{VERSION}.dist-info").is_dir()
