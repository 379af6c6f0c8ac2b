"""What a bento is built from: the code that services import and nothing else, exact versions, and an image without root.

Its requirements are the pins of all that services need, on any Python, and of nothing that GPUs alone need. The table of
settings names every variable, what it is when it is not set, and which systems have it.
"""

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

from deploy import bento_pins, bentos
from deploy.bento_pins import closure, pinned_lines
from deploy.bentos import IMAGE, REQUIREMENTS, SETUP, bentofile, readme
from deploy.settings_table import Row, flows_table, rows, table
from pliant import systems
from pliant.errors import InputError
from pliant.registry.package import copy_code
from pliant.serving.launch import service_path
from pliant.serving.settings import settings_of
from pliant.settings import FlowSettings, variable
from pliant.version import VERSION
from tests.architecture import LINKED, OURS, imports
from tests.fixtures.places import ROOT

ELSEWHERE = ("vllm", "ray", "triton")
"""Packages that are no part of a bento: an engine in an environment of its own, devices on several machines, and what comes
with torch for a GPU."""
NEEDS = {
    "service": ["Middle[fast]>=1; python_version >= '3.12'", "windows-only; sys_platform == 'win32'"],
    "middle": ["quick; extra == 'fast'", "slow; extra == 'slow'"],
    "torch": ["quick", "triton", "cuda-toolkit", "nvidia-cublas==13; sys_platform == 'linux'"],
    "quick": ["service"],
    "prefect": ["never"],
}
of_systems = pytest.mark.parametrize("system", systems.names())


def config_of(system: str) -> BentoBuildConfig:
    """The system's bentofile as BentoML reads it."""
    return BentoBuildConfig.from_file(str(ROOT / bentofile(system))).with_defaults()


@cache
def included() -> list[str]:
    """Return the files of the checkout that a bento holds, by BentoML's own rules."""
    config = config_of("tokens")
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


@of_systems
def test_bentoml_reads_the_file_and_finds_all_that_it_names(system):
    config = config_of(system)
    assert config.service == service_path(system)
    assert config.labels == {"project": "pliant", "version": bentos.project_version(ROOT), "system": system}
    assert config.description == f"file: {readme(system)}"
    assert (ROOT / readme(system)).is_file() and (ROOT / config.python.requirements_txt).is_file()
    assert config.docker.python_version == "3.11" and not config.python.lock_packages
    assert {env.name: env.value for env in config.envs} == IMAGE


def test_a_bento_holds_code_its_pages_and_nothing_else():
    assert all(path.startswith("pliant/") and path.endswith((".py", ".html")) for path in included())
    assert sorted(path for path in included() if path.endswith(".html")) == [
        "pliant/serving/cascade/label.html",
        "pliant/serving/http/try.html",
    ]
    assert not [path for path in included() if "__pycache__" in path]


def test_every_module_of_ours_that_its_code_imports_is_in_it_and_every_package_pinned():
    files, distributions, pins = set(included()), packages_distributions(), pinned()
    assert {f"pliant/serving/{name}/service.py" for name in systems.names()} < files
    for path in filter(lambda path: path.endswith(".py"), files):
        for module in _imported(path):
            top = module.partition(".")[0]
            if top in OURS:
                assert _file_of(module) in files, f"{path} imports {module}"
            elif top in distributions and top not in ELSEWHERE:
                assert set(map(canonicalize_name, distributions[top])) & set(pins), f"{path} imports {module}"


def test_every_pin_is_one_version_and_one_of_the_project_and_the_code_says_its_version():
    assert bentos.project_version(ROOT) == VERSION
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in (ROOT / REQUIREMENTS).read_text(encoding="utf-8").splitlines()[1:]:
        assert line in lines
    assert all([each.operator for each in pin.specifier] == ["=="] for pin in pinned().values())
    assert not {"triton", "nvidia-cublas", "prefect", "pytest", "vllm"} & set(pinned())


def test_the_image_installs_the_pins_and_runs_the_service_without_root(tmp_path):
    config = config_of("tokens")
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


def test_what_any_python_or_platform_of_ours_needs_is_in_and_what_none_or_gpus_alone_need_is_not():
    for roots, expected in [
        (["service"], {"service", "middle", "quick"}),
        (["torch", "nvidia-ml-py"], {"torch", "quick", "service", "middle", "nvidia-ml-py"}),
    ]:
        assert closure(map(Requirement, roots), lambda name: NEEDS.get(name, ())) == expected


def test_pins_of_what_is_needed_keep_markers_and_order_and_others_than_installed_or_none_are_refused(monkeypatch):
    installed = {"b": "2+cpu", "d": "4"}
    monkeypatch.setattr(bento_pins, "_installed_version", lambda name: installed.get(name, ""))
    lines = ["A-a==1 ; python_version < '3.12'", "a_a==2 ; python_version >= '3.12'", "b==2", "c==3"]
    assert list(pinned_lines(lines, ["a-a", "b", "windows-only"])) == lines[:3]
    with pytest.raises(InputError, match="the installed d is 4, but must be 2 or 3"):
        list(pinned_lines(["d==2", "d==3"], ["d"]))
    with pytest.raises(InputError, match="without b"):
        list(pinned_lines(["a==1"], ["a", "b"]))


@of_systems
def test_every_setting_of_a_system_is_in_its_table_once_with_its_default_as_a_variable_has_it(system):
    listed = {row.variable: row.default for row in rows([system])}
    assert sorted(listed) == sorted(map(variable, settings_of(system).model_fields))
    expected = {"TRY_CHALLENGERS": "true", "HOME": ".pliant", "KEYS_FILE": "", "THREADS": "", "REFRESH_SECONDS": "30.0"}
    assert {name: listed[f"PLIANT_{name}"] for name in expected} == expected


def test_settings_that_differ_by_the_systems_names_alone_share_a_row_and_a_cell_cannot_break_a_table():
    (row,) = [row for row in rows() if row.variable == "PLIANT_EXPERIMENT"]
    assert (row.systems, row.default) == (systems.names(), "pliant-SYSTEM")
    policies = {row.systems: row.meaning for row in rows() if row.variable == "PLIANT_POLICY"}
    assert sorted(policies) == [("bins",), ("packing",), ("tokens",)] and "`otas`" in policies["tokens",]
    assert all(variable(name) in flows_table() for name in FlowSettings.model_fields)
    assert table([Row("PLIANT_A", "", ("tokens",), "a|b")]).splitlines()[-1] == r"| `PLIANT_A` |  | a\|b |"


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
