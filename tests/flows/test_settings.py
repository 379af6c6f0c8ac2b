"""Where the flow and the command line keep their things."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.errors import InputError
from pliant.flows import settings


@pytest.mark.parametrize(
    ("uri", "artifacts"),
    [
        (None, "mlruns/artifacts"),
        ("sqlite:////srv/registry/mlflow.db", "/srv/registry/artifacts"),
        ("sqlite:///kept/mlflow.db", "kept/artifacts"),
        ("http://127.0.0.1:5000", "mlruns/artifacts"),
    ],
)
def test_artifacts_lie_beside_the_database_that_holds_the_registry(uri, artifacts, tmp_path, monkeypatch):
    """They used to land in `mlruns` of whatever directory the flow was started from."""
    monkeypatch.chdir(tmp_path)
    project = settings.read({"MLFLOW_TRACKING_URI": uri} if uri else {})
    assert project.home == tmp_path / ".pliant"
    assert project.tracking_uri == (uri or f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    assert project.artifact_root == tmp_path / artifacts


def test_what_a_service_left_is_looked_for_in_a_home_of_its_own_where_there_is_one(tmp_path):
    project = settings.read({"PLIANT_HOME": str(tmp_path)})
    (tmp_path / "services" / "bins").mkdir(parents=True)
    homes = {system: project.home_of(system) for system in ("tokens", "bins")}
    assert homes == {"tokens": tmp_path, "bins": tmp_path / "services" / "bins"}


def test_a_place_where_no_folder_can_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    project = settings.read({"PLIANT_HOME": str(tmp_path / "file" / "home")})
    with pytest.raises(InputError, match="PLIANT_HOME"):
        settings.prepare(project)


def test_keys_of_signatures_are_named_by_variables_and_an_empty_one_is_no_permission(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (settings.read({}).signing_key, settings.read({}).trusted_keys) == (None, None)
    project = settings.read({"PLIANT_SIGNING_KEY": "release.pem", "PLIANT_TRUSTED_KEYS": "/srv/keys"})
    assert (project.signing_key, project.trusted_keys) == (tmp_path / "release.pem", Path("/srv/keys"))
    for name in ("PLIANT_SIGNING_KEY", "PLIANT_TRUSTED_KEYS"):
        with pytest.raises(InputError, match=f"{name} is empty, but must be a path"):
            settings.read({name: ""})
