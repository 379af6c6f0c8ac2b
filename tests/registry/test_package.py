"""What an artifact of a kind needs in an MLflow client: the code that runs it, and the distributions that this imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import pliant.registry
from pliant.errors import ArtifactError
from pliant.registry.descriptions import no_longer_served, of_release, of_version, restated, served
from pliant.registry.package import Package, needed, pyfunc_file
from tests.architecture import imports

FOLDER = Path(pliant.registry.__file__).parent / "pyfunc"
KINDS = ["tokens-task", "bins-plan", "cascade-task", "packing-plan"]


@cache
def distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_a_kind_imports_nothing_that_is_not_required(kind):
    files = (pyfunc_file(kind), FOLDER / "__init__.py", FOLDER / f"{kind.partition('-')[0]}.py")
    modules = [module for file in files for module in imports(ast.parse(file.read_text()))]
    foreign = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"pliant", "registry"}
    assert foreign
    for name in foreign:
        assert set(needed(kind)) & {distribution.lower() for distribution in distributions()[name]}, name


def test_the_distributions_are_named_once_and_sorted():
    for kind in (*KINDS, "rockets-engine"):
        assert list(needed(kind)) == sorted(set(needed(kind)))
    assert set(needed("rockets-engine")) < set(needed("tokens-task")) > {"timm", "torchvision"}
    assert needed("bins-plan") == needed("bins-encoder") != needed("tokens-task")


def test_a_kind_without_code_is_an_error_that_names_the_file():
    with pytest.raises(ArtifactError, match=r"pyfunc\.rockets says how .* rockets-engine answers"):
        pyfunc_file("rockets-engine")


GATE = {
    "passed": True,
    "reason": "it earns 12.0",
    "challenger": {"accuracy": 0.91, "reports": [{"utility": 12.0}, {"utility": 13.5}], "passed": True},
    "champion": {"accuracy": 0.9, "reports": [{"utility": 11.0}]},
}


def test_a_version_says_its_data_its_metrics_and_what_it_descends_from():
    tags = {"pliant.data": "sha256:1", "pliant.git_commit": "abc"}
    text = of_version(Package("n", Path("f"), {}, {}, metrics={"loss": 0.123456, "rows": 3}, tags=tags), 4)
    assert text == (
        "Not served yet.\nMade while version 4 was served.\nData: `sha256:1`.\nCommit: `abc`.\n\n"
        "| metric | value |\n| --- | --- |\n| loss | 0.1235 |\n| rows | 3 |"
    )
    first = of_version(Package("n", Path("f"), {}, {}), None)
    assert first == "Not served yet.\nMade before any version was served."


def test_what_a_version_says_of_being_served_takes_the_place_of_what_it_said_before():
    new = of_version(Package("n", Path("f"), {}, {}, tags={"pliant.data": "d"}), None)
    facts = "Made before any version was served.\nData: `d`."
    live = restated(new, served("2026-11-27T00:10:09+00:00", 3))
    assert live == f"Served since 2026-11-27 00:10 UTC (release 3).\n{facts}"
    gone = restated(live, no_longer_served("2026-11-28T01:00:00+00:00", 5, 4))
    assert gone == f"Served until 2026-11-28 01:00 UTC, when version 5 took its place (release 4).\n{facts}"
    out = no_longer_served("2026-11-28T01:00:00+00:00", None, None)
    assert restated(gone, out) == f"Served until 2026-11-28 01:00 UTC, when it was left out.\n{facts}"


@pytest.mark.parametrize(
    ("old", "rest"),
    [
        ("The first champion is still to come.\nData: `d`.", "\nData: `d`."),
        ("Descends from version 4, the champion.", ""),
        ("", ""),
        ("Written by hand.\nTwo lines.", "\nWritten by hand.\nTwo lines."),
    ],
)
def test_what_earlier_versions_of_pliant_wrote_is_replaced_and_what_people_wrote_is_kept(old, rest):
    assert restated(old, "Served since then.") == f"Served since then.{rest}"


def test_a_release_has_the_gates_figures_of_both_sides():
    text = of_release("it earns 12.0", GATE, 3)
    assert text.startswith("The gate: it earns 12.0.\nMade on top of release 3.\n\n| measure | challenger | champion |")
    assert "| accuracy | 0.91 | 0.9 |" in text and "| reports.1.utility | 12 |  |" in text
    assert "passed" not in text


def test_a_release_of_several_tasks_names_each_in_front():
    text = of_release("", {"a": GATE, "b": GATE | {"champion": None}}, None)
    assert text.startswith("The first release.\n\n| of | measure | challenger | champion |")
    assert "| a | accuracy | 0.91 | 0.9 |" in text and "| b | accuracy | 0.91 |  |" in text
