"""Commands of a user who may not read or write what they need: one sentence with the path, status 2, and no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fixtures.bins.published import MlflowPublisher, publish_tiny
from tests.fixtures.places import ROOT

UNPRIVILEGED: Sequence[str] = ()
"""What stands before a command."""
if os.geteuid() == 0:
    UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")

needs_unprivileged = pytest.mark.skipif(
    bool(UNPRIVILEGED) and shutil.which("setpriv") is None,
    reason="root may read and write everything, and setpriv (Debian: util-linux) is not there to take that away",
)
pytestmark = [pytest.mark.slow, needs_unprivileged]


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("registry")
    publish_tiny(MlflowPublisher(folder), "colours")
    return f"sqlite:///{folder}/mlflow.db"


def sentence(words: str, home: Path, registry: str) -> str:
    """What a command says that is refused."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PLIANT_", "PREFECT_"))}
    places = {"PLIANT_HOME": str(home), "MLFLOW_TRACKING_URI": registry, "PYTHONPATH": str(ROOT)}
    command = [*UNPRIVILEGED, sys.executable, "-m", "pliant", *words.split()]
    environment = {**inherited, **places}
    done = subprocess.run(command, cwd=home.parent, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    yield tmp_path / "home"
    (tmp_path / "home").chmod(0o755)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve bins --port 0", "BentoML's folder is {home}/bentoml-"),
        ("train bins", "log is {home}/logs/prefect.log, but must be a file that this user can write"),
        ("keys add --tenant acme", "file of keys is {home}/keys.json, but must be a file that can be written"),
    ],
)
def test_a_folder_of_the_state_that_cannot_be_written(words, said, home, registry):
    home.chmod(0o555)
    answer = sentence(words, home, registry)
    assert answer.startswith("pliant: " + said.format(home=home)) and answer.endswith("(Permission denied)")


def test_a_registry_that_cannot_be_read_is_named_at_once(home):
    (home.parent / "mlflow.db").touch(mode=0)
    answer = sentence("status bins", home, f"sqlite:///{home.parent}/mlflow.db")
    assert (
        answer
        == f"pliant: the registry's database {home.parent}/mlflow.db cannot be read by this user: Permission denied"
    )
