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
from pliant import systems
from pliant.registry import names
from pliant.registry.descriptions import no_longer_served, of_release, of_version, restated, served
from pliant.registry.package import Package, needed, pyfunc_file
from tests.architecture import imports

SYSTEMS = systems.names()

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


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_manages_models_is_no_model_of_a_system(system):
    for name in (names.release(system), names.lock(system) + "1", names.experiment(system)):
        assert names.system_of(name) is None
    assert len({names.release(system), names.lock(system), names.experiment(system), names.prefix(system)}) == 4


@pytest.mark.parametrize(
    "name", ["", "pliant", "pliant-", "pliant-tokens", "their-tokens-task", "pliant-rockets-a", "tokens-a"]
)
def test_a_strangers_model_belongs_to_no_system(name):
    assert names.system_of(name) is None


def test_names_of_different_models_never_meet():
    own = [value for key, value in vars(names).items() if key.isupper() and str(value).startswith("pliant-")]
    whole = [name for name in own if not name.endswith("-")]
    assert len(set(own)) == len(own)
    prefixes = [name for name in own if name.endswith("-") and name not in map(names.prefix, SYSTEMS)]
    assert not [(a, b) for a in prefixes for b in (*prefixes, *whole) if a != b and b.startswith(a)]


def test_names_are_those_that_registries_hold_by_now():
    """Another name would leave what was published under the former one behind."""
    assert (names.experiment("bins"), names.prefix("bins")) == ("pliant-bins", "pliant-bins-")
    assert (names.release("bins"), names.lock("bins")) == ("pliant-release-bins", "pliant-lock-bins-")
    assert (names.TOKENS_BACKBONE, names.TOKENS_PROFILE) == ("pliant-tokens-backbone", "pliant-tokens-profile")
    assert names.TOKENS_TASK == "pliant-tokens-task-"
    assert (names.BINS_PREFIX, names.BINS_ENCODER) == ("pliant-bins-", "pliant-bins-encoder-")
    assert (names.CASCADE_TASK, names.CASCADE_MODEL) == ("pliant-cascade-task-", "pliant-cascade-model-")
    assert names.PACKING_GENERATOR == "pliant-packing-generator-"
    assert names.PACKING_PREDICTOR == "pliant-packing-predictor-"
    assert names.LEVEL_TAG == "pliant.model."
