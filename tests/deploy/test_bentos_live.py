"""Bentos as BentoML's users have them: built from the checkout, served from an empty folder by their own code alone."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.bentos import REQUIREMENTS
from pliant.serving.http.access.keys import update_keys
from pliant.serving.launch import Service
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny
from tests.fixtures.certificate import make_certificate
from tests.fixtures.clients import PATIENCE, free_port
from tests.fixtures.live import processes
from tests.fixtures.places import ROOT
from tests.serving.http.access.test_keys import with_new

pytestmark = pytest.mark.slow
ALONE = """
import sys
from importlib.machinery import PathFinder
from importlib.metadata import DistributionFinder

class Pinned(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {missing!r} else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context=DistributionFinder.Context()):
        return [] if context.name == "pliant" else PathFinder.find_distributions(context)

others = [finder for finder in sys.meta_path if finder is not PathFinder]
sys.meta_path[:] = [finder for finder in others if "__editable__" not in getattr(finder, "__module__", "")] + [Pinned]
sys.path[:] = [path for path in sys.path if path not in {checkout!r} and "__editable__" not in path]
"""
"""Python's `sitecustomize`: neither the checkout that is installed here nor anything that is not pinned can be imported.

Nor is there a distribution of Pliant whose version could be asked for.
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """An environment with a folder of bentos of its own, whose Python does not know the checkout, nor what is installed here
    and would not be beside a bento, such as the packages of flows and tests."""
    lines = (ROOT / REQUIREMENTS).read_text(encoding="utf-8").splitlines()
    pins = {"pliant", *(canonicalize_name(Requirement(line).name) for line in lines if not line.startswith("#"))}
    missing = {top for top, names in packages_distributions().items() if not {*map(canonicalize_name, names)} & pins}
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(
        ALONE.format(missing=missing, checkout=[str(ROOT), str(ROOT / "packages" / "pliant-core")])
    )
    ours = ("PLIANT_", "BENTOML_", "MLFLOW_", "PREFECT_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    home = tmp_path_factory.mktemp("bentoml")
    return {**inherited, "PYTHONPATH": str(site), "BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"}


@pytest.fixture(scope="module")
def tag(environment) -> str:
    """The tag of a bento of bins that is built in the checkout as its users do."""
    command = [sys.executable, "-m", "pliant", "bento", "bins"]
    home = {**os.environ, "BENTOML_HOME": environment["BENTOML_HOME"]}
    process = subprocess.run(command, cwd=ROOT, env=home, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def code(tag: str, environment: Mapping[str, str]) -> Path:
    name, _, version = tag.partition(":")
    return Path(environment["BENTOML_HOME"]) / "bentos" / name / version / "src"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_the_environment_has_neither_the_checkout_nor_what_is_not_pinned(environment, tmp_path):
    find = "from importlib.util import find_spec; print([find_spec(name) for name in ('pliant', 'prefect', 'pytest')])"
    process = subprocess.run(
        [sys.executable, "-c", find], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert process.stdout == "[None, None, None]\n", process.stderr


def test_a_bento_serves_the_champion_from_an_empty_folder_by_its_own_code_behind_key_and_certificate(
    tag, environment, tmp_path
):
    registry, folder, log, port = tmp_path / "registry", tmp_path / "empty", tmp_path / "log", free_port()
    registry.mkdir(), folder.mkdir()
    publish_tiny(MlflowPublisher(registry), "colours")
    certificate, private = make_certificate(tmp_path)
    secret, _ = update_keys(tmp_path / "keys.json", with_new)
    before = files(code(tag, environment))
    variables = {
        "PLIANT_REGISTRY_URI": f"sqlite:///{registry}/mlflow.db",
        "PLIANT_ARTIFACT_ROOT": str(registry / "artifacts"),
        "PLIANT_HOST": "0.0.0.0",
        "PLIANT_KEYS_FILE": str(Path("..") / "keys.json"),
        "PLIANT_TLS_CERT": str(certificate),
        "PLIANT_TLS_KEY": str(private),
    }
    command = [sys.executable, "-m", "bentoml", "serve", tag, "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**environment, **variables}, stdout=output, stderr=output, start_new_session=True
        )
    service = Service(process, f"https://127.0.0.1:{port}", log)
    try:
        service.wait_until_ready(PATIENCE)
        trusting = ssl.create_default_context(cafile=certificate)
        with httpx.Client(base_url=service.url, verify=trusting, timeout=PATIENCE, trust_env=False) as client:
            for path in ("/readyz", "/livez", "/healthz"):
                assert client.get(path).status_code == 200
            assert client.post("/predict", json={"inputs": "a dog"}).status_code == 401
            client.headers["authorization"] = f"Bearer {secret}"
            assert client.get("/v2").status_code == 200
            answer = client.post("/predict", json={"inputs": "a dog"})
            assert answer.status_code == 200 and '"red"' in answer.text
        children = processes(service, "child_process.py")
        assert children and all(str(code(tag, environment)) in " ".join(child.cmdline()) for child in children)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(PATIENCE)
    assert status == 0, log.read_text()
    assert (folder / ".pliant").is_dir()
    assert files(code(tag, environment)) == before


def test_a_bento_without_a_registry_ends_and_says_why(tag, environment, tmp_path):
    command = [sys.executable, "-m", "bentoml", "serve", tag, "--port", str(free_port())]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert process.returncode
    assert f"there is no registry database at {tmp_path}/mlruns/mlflow.db" in process.stdout
