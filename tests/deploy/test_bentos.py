"""What a bento is built from: the code that services import and nothing else, exact versions, and an image without root."""

from __future__ import annotations

import ast
import stat
import subprocess
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from _bentoml_sdk.images import populate_image_from_build_config
from bentoml._internal.bento.build_config import BentoBuildConfig, BentoPathSpec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import bentos
from deploy.bentos import IMAGE, PAGE, REQUIREMENTS, SETUP, bentofile, readme
from pliant import systems
from pliant.errors import InputError
from pliant.registry.package import copy_code
from pliant.serving.launch import service_path
from pliant.version import VERSION
from tests.architecture import LINKED, OURS, imports
from tests.fixtures.places import ROOT

ELSEWHERE = ("vllm", "ray")
"""Packages that are no part of a bento: an engine in an environment of its own, and devices on several machines."""


@pytest.fixture(params=systems.names())
def system(request) -> str:
    return request.param


@pytest.fixture
def config(system) -> BentoBuildConfig:
    """The system's bentofile as BentoML reads it."""
    return BentoBuildConfig.from_file(str(ROOT / bentofile(system))).with_defaults()


@cache
def included() -> list[str]:
    """Return the files of the checkout that a bento holds, by BentoML's own rules."""
    config = BentoBuildConfig.from_file(str(ROOT / bentofile("tokens"))).with_defaults()
    specs = BentoPathSpec(config.include, config.exclude, str(ROOT / "deploy"))  # a folder without .bentoignore
    with TemporaryDirectory() as staged:
        copy_code(Path(staged), "registry", "serving")
        paths = [path.relative_to(staged).as_posix() for path in Path(staged).rglob("*.*")]
    return [path for path in paths if specs.includes(path)]


def pinned() -> dict[str, Requirement]:
    lines = (ROOT / REQUIREMENTS).read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_the_files_are_those_that_the_settings_and_pins_give():
    try:
        texts = bentos.files(ROOT)
    except InputError as error:
        if error.field.startswith("the installed"):
            pytest.skip(f"the pins cannot be derived here: {error}")
        raise
    for path, text in texts.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run python -m deploy.bentos"


def test_the_page_of_settings_is_the_one_that_the_classes_give():
    assert (ROOT / PAGE).read_text(encoding="utf-8") == bentos.settings_page(), "run python -m deploy.bentos"


def test_bentoml_reads_the_file_and_finds_all_that_it_names(config, system):
    assert config.service == service_path(system)
    assert config.labels == {"project": "pliant", "version": bentos.project_version(ROOT), "system": system}
    assert config.description == f"file: {readme(system)}"
    assert (ROOT / readme(system)).is_file() and (ROOT / config.python.requirements_txt).is_file()
    assert config.docker.python_version == "3.11" and not config.python.lock_packages
    assert {env.name: env.value for env in config.envs} == IMAGE


def test_a_bento_holds_code_and_nothing_else():
    kinds = {path.rpartition(".")[2] for path in included()}
    folders = {path.partition("/")[0] for path in included()}
    assert kinds == {"py"} and folders == {"pliant"}
    assert not [path for path in included() if "__pycache__" in path]


def test_every_module_of_ours_that_its_code_imports_is_in_it():
    files = set(included())
    assert {f"pliant/serving/{name}/service.py" for name in systems.names()} < files
    for path in files:
        if path.endswith(".py"):
            for module in _imported(path):
                if module.partition(".")[0] in OURS:
                    assert _file_of(module) in files, f"{path} imports {module}"


def test_every_package_that_its_code_imports_is_pinned():
    distributions, pins = packages_distributions(), pinned()
    for path in included():
        for module in _imported(path) if path.endswith(".py") else ():
            top = module.partition(".")[0]
            if top in distributions and top not in (*OURS, *ELSEWHERE):
                names = {canonicalize_name(name) for name in distributions[top]}
                assert names & set(pins), f"{path} imports {module}"


def test_every_pin_is_one_version_and_one_of_the_project_and_the_code_says_its_version():
    assert bentos.project_version(ROOT) == VERSION
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in (ROOT / REQUIREMENTS).read_text(encoding="utf-8").splitlines()[1:]:
        assert line in lines
    assert all([each.operator for each in pin.specifier] == ["=="] for pin in pinned().values())
    assert not {"triton", "nvidia-cublas", "prefect", "pytest", "vllm"} & set(pinned())


def test_the_image_installs_the_pins_and_runs_the_service_without_root(config, tmp_path):
    image = populate_image_from_build_config(None, config, str(ROOT))
    image.freeze(tmp_path, config.envs)
    lines = (tmp_path / "env/docker/Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("FROM")] == ["FROM python:3.11-slim AS base-container"]
    assert [line for line in lines if line.startswith("USER")] == ["USER bentoml"]
    assert lines.index("USER bentoml") < lines.index('ENTRYPOINT [ "/home/bentoml/bento/env/docker/entrypoint.sh" ]')
    assert "EXPOSE 3000" in lines
    installing = next(
        place for place, line in enumerate(lines) if "pip install -r $BENTO_PATH/env/python/requirements" in line
    )
    for name, value in IMAGE.items():
        assert lines.index(f"ARG {name}={value}") < lines.index(f"ENV {name}=${name}") < installing
    subprocess.run(["sh", "-n", ROOT / SETUP], check=True)
    assert (ROOT / SETUP).stat().st_mode & stat.S_IXUSR
    (script,) = (tmp_path / "env/docker").glob("script__*")
    assert script.read_bytes() == (ROOT / SETUP).read_bytes()
    assert any(script.name in line for line in lines[installing : lines.index("USER bentoml")])
    installed = [line for line in (tmp_path / "env/python/requirements.txt").read_text().splitlines() if "==" in line]
    assert {canonicalize_name(Requirement(line).name) for line in installed} == set(pinned())
    assert all(not line.startswith("CMD") and "sudo" not in line for line in lines)


@cache
def _imported(path: str) -> tuple[str, ...]:
    """Return the modules that a file imports; one of "SYSTEM" stands for that of each system."""
    modules = imports(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return tuple(
        dict.fromkeys(module.replace(".SYSTEM.", f".{name}.") for module in modules for name in systems.names())
    )


def _file_of(module: str) -> str:
    """Return the file of a module, or of the one that a full name is imported from."""
    for name in (module, module.rpartition(".")[0]):
        for file in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"):
            if (ROOT / file).is_file():
                return f"pliant/{file}" if file.partition("/")[0] in LINKED else file
    return ""
