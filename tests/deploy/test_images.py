"""What deploy/ builds: images with the project's own pins, without root, from files that are there; and its secrets."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess

import pytest

from pliant.settings import PREFIX
from pliant.version import VERSION
from tests.deploy.stack import DEPLOY, compose, example, known_to_flows, services
from tests.fixtures.places import ROOT

DOCKERFILES = ("worker", "mlflow", "prefect")
NEEDED = {"mlflow": ("mlflow", "psycopg"), "prefect": ("prefect", "sqlalchemy", "fastapi", "asyncpg")}
TAKEN = "flows pliant registry training profiling serving cli pyproject.toml"


def lines(name):
    """Return the instructions of a Dockerfile, with continued lines put together."""
    text = (DEPLOY / name / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_has_one_python_the_exact_pins_a_user_without_rights_and_his_folders(name):
    first, *rest = lines(name)
    assert re.fullmatch(r"FROM python:3\.11\.\d+-slim-bookworm", first)
    installs = [line for line in rest if "pip install" in line]
    assert installs and all(re.search(r"--constraint \S*constraints\.txt", line) for line in installs)
    assert all(re.search(rf"\b{package}\b", installs[0]) for package in NEEDED.get(name, ()))
    (user,) = [line.split()[1] for line in rest if line.startswith("USER ")]
    folders = set(re.findall(r"(/\S+)", re.search(r"install --directory ([^&\n]*)", " ".join(rest))[1]))
    dockerfile = f"deploy/{name}/Dockerfile"
    for service in (each for each in services().values() if each.get("build", {}).get("dockerfile") == dockerfile):
        assert service["user"] == user
        assert {volume.split(":")[1] for volume in service["volumes"]} <= {*folders, "/var/tmp"}  # that is everybody's


def test_the_workers_image_is_of_this_version_takes_what_flows_import_and_sets_what_they_read():
    assert example()["IMAGE_TAG"] == VERSION
    rules = (DEPLOY / "worker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    taken = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert rules[1] == "*" and all((ROOT / name).exists() for name in taken)
    assert not taken & {"deploy", "tests", "mlruns", ".pliant", ".git", ".venv"} and set(TAKEN.split()) <= taken
    ours = set(re.findall(rf"\b({PREFIX}\w+)=", " ".join(lines("worker"))))
    assert ours and ours <= known_to_flows()


def test_prefects_work_pools_are_those_of_the_workers():
    from pliant.flows.watch import automations, deployments

    assert services()["worker"]["command"][:5] == ["prefect", "worker", "start", "--pool", deployments.POOL]
    assert services()["notify"]["command"][:5] == ["prefect", "worker", "start", "--pool", deployments.NOTIFY_POOL]
    assert services()["setup"]["command"][0].endswith(f"exec python -m {automations.__name__}")


def make_secrets(folder, *arguments):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not here")
    environment = {**os.environ, "SECRETS": str(folder)}
    command = ["bash", str(DEPLOY / "make_secrets.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_script_makes_every_secret_but_the_key_of_prometheus_and_makes_none_again(tmp_path):
    folder = tmp_path / "secrets"
    output = make_secrets(folder, "api.example.org")
    wanted = {secret["file"].removeprefix("./secrets/") for secret in compose()["secrets"].values()}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(before) == wanted - {"monitor_key"} and len(set(before.values())) == len(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())
    assert re.search(r"as operators with [0-9a-f]{24}", output)
    assert make_secrets(folder) == ""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    command = ["openssl", "x509", "-in", str(folder / "tls_certificate"), "-noout", "-ext", "subjectAltName"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("api.example.org", "localhost", "grafana.localhost", "mlflow.localhost", "prefect.localhost"):
        assert f"DNS:{name}" in text


def test_postgres_makes_the_databases_of_mlflow_and_prefect_from_their_secrets():
    script = (DEPLOY / "postgres" / "databases.sh").read_text(encoding="utf-8")
    assert os.access(DEPLOY / "postgres" / "databases.sh", os.X_OK)
    assert "for name in mlflow prefect" in script
    assert {"mlflow_password", "prefect_password"} <= set(services()["postgres"]["secrets"])
    url = services()["mlflow"]["environment"]["MLFLOW_BACKEND_STORE_URI"]
    assert url == "postgresql+psycopg://mlflow@postgres:5432/mlflow"
    url = services()["prefect-server"]["environment"]["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert url == "postgresql+asyncpg://prefect@postgres:5432/prefect"
