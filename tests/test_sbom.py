"""`make sbom`: the list of all that is installed is CycloneDX 1.6, and every requirement of the project is in it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import bento_pins
from tests.fixtures.places import ROOT

pytest.importorskip("cyclonedx_py", reason="needs the tools of the tests: pip install -e '.[dev]'")
pytestmark = pytest.mark.slow
EXTRAS = ("serve", "train", "registry", "models", "sim")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    """What the Makefile's own command writes for the environment that runs the tests."""
    file = tmp_path_factory.mktemp("sbom") / "sbom.cdx.json"
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^\t(\$\(BIN\)/python -m cyclonedx_py .*)$", recipe, re.MULTILINE)
    for name, value in (("$(BIN)/python", sys.executable), ("$(OF)", sys.executable), ("sbom.cdx.json", str(file))):
        assert name in command
        command = command.replace(name, shlex.quote(value))
    subprocess.run(shlex.split(command), cwd=ROOT, check=True)
    return file.read_text(encoding="utf-8")


def validator() -> Any:
    """Return what checks a document by the schemas of cyclonedx-python-lib, whose own validator takes 45 s for it."""
    jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="needs the tools of the tests: pip install -e '.[dev]'")
    schemas = {
        name: json.loads(
            (files("cyclonedx.schema") / "_res" / f"{name}.SNAPSHOT.schema.json").read_text(encoding="utf-8")
        )
        for name in ("bom-1.6", "spdx", "jsf-0.82")
    }
    named = [(f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", schema) for name, schema in schemas.items()]
    registry = jsonschema_rs.Registry(named)
    return jsonschema_rs.validator_for(schemas["bom-1.6"], registry=registry, validate_formats=True)


@pytest.fixture(scope="module")
def components(text) -> dict[str, Any]:
    return {canonicalize_name(each["name"]): each for each in json.loads(text)["components"]}


def test_it_is_valid_by_the_schema_of_cyclonedx_1_6_and_of_this_project(text):
    document = json.loads(text)
    assert [error.message for error in validator().iter_errors(document)] == []
    assert not validator().is_valid({**document, "parts": []}) and not validator().is_valid(
        {**document, "version": "x"}
    )
    assert document["specVersion"] == "1.6"
    project = document["metadata"]["component"]
    assert project["name"] == "pliant" and project["licenses"]


def test_every_requirement_of_the_project_is_in_it_with_the_version_that_is_installed(components):
    projects = [bento_pins.project_requires(ROOT / folder) for folder in bento_pins.PROJECTS]
    requirements = [Requirement(line) for _, lines in projects for line in lines]
    assert len(requirements) > 30
    for requirement in requirements:
        marker, ours = requirement.marker, requirement.name.startswith("pliant")
        if not ours and (marker is None or any(marker.evaluate({"extra": extra}) for extra in EXTRAS)):
            assert components[canonicalize_name(requirement.name)]["version"] == version(requirement.name)
