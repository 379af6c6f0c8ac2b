"""The embedded corpus: read from source files, without names, repetitions or files on both sides of a split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.training.docstrings import TASKS, corpus, load, parameters, split
from pliant.training.text_data import Shares

WORDS = np.array(
    [a + b + c for a in ("ba", "do", "ki", "lu") for b in ("me", "no", "ra") for c in ("sat", "tem", "vol")]
)
PAIR = ("pliantfirst", "pliantsecond")


def prose(rng: np.random.Generator, count: int = 12) -> str:
    return " ".join(rng.choice(WORDS, count))


def write_package(root, name: str, files: int = 12, seed: int = 0) -> None:
    """Write a package with a module, a class, a method and a function documented in each file."""
    rng = np.random.default_rng(seed)
    (root / name).mkdir()
    for file in range(files):
        documented = [
            f"{prose(rng)}.\n\n    {prose(rng)}.\n\n    Args:\n        one: {prose(rng, 3)}\n    " for _ in range(4)
        ]
        source = (
            f'"""{documented[0]}"""\nraise RuntimeError("imported")\n\nclass A:\n    """{documented[1]}"""\n'
            f'    def b(self):\n        """{documented[2]}"""\n\ndef c():\n    """{documented[3]}"""\n'
        )
        (root / name / f"file{file}.py").write_text(source)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    for seed, name in enumerate(PAIR):
        write_package(tmp_path, name, seed=seed)
    monkeypatch.syspath_prepend(tmp_path)
    return PAIR


@pytest.mark.parametrize("task", TASKS)
def test_no_file_is_both_to_fit_and_held_out(packages, task):
    source = {docstring.paragraphs[0]: docstring.source for docstring in corpus(packages)}
    loaded = load(task, packages=packages)
    held = np.concatenate([loaded.split.profiling, loaded.split.test])
    fit_files, held_files = (
        {source[loaded.first[row].split("\n")[0]] for row in part} for part in (loaded.split.fit, held)
    )
    assert fit_files
    assert held_files
    assert fit_files.isdisjoint(held_files)


def test_no_more_docstrings_of_a_package_and_of_a_file_are_read_than_allowed(packages):
    sources = [docstring.source for docstring in corpus(packages, 7, 2)]
    assert len(sources) == 14 and max(map(sources.count, sources)) == 2


@pytest.mark.parametrize(
    ("task", "classes"),
    [
        ("package", PAIR),
        ("kind", ("class", "function", "method", "module")),
        ("parameters", ()),
        ("same", ("other", "same")),
    ],
)
def test_every_task_has_its_classes_each_as_often(packages, task, classes):
    loaded = load(task, packages=packages)
    assert (loaded.name, loaded.classes, loaded.regression) == (task, classes, task == "parameters")
    if classes:
        counts = np.bincount(loaded.labels)
        assert counts.min() > 0.9 * counts.max()
    else:
        assert set(loaded.labels) == {1.0}  # one parameter each


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Nothing at all.", 0),
        (
            "Adds.\n\nParameters\n----------\nx, y : int\n    Both.\n*args\n    More: of it.\n\nReturns\n-------\nz : int",
            3,
        ),
        ("Adds.\n\nParameters\n----------\nx : int\n\nOther Parameters\n----------------\ny : int\n", 2),
        ("Adds.\n\nArgs:\n    x (int): One.\n        Note: on x.\n    y: Two.\n\nReturns:\n    z: It.", 2),
        ("Adds.\n\n:param x: one\n:param int y: two\n:return: it", 2),
        ("Parameters are not listed here.", 0),
    ],
)
def test_documented_parameters_are_counted_in_three_manners(text, count):
    assert parameters(text) == count


@given(
    st.lists(st.integers(0, 12), min_size=20, max_size=60), st.integers(0, 5), st.floats(0.1, 0.5), st.floats(0.1, 0.5)
)
def test_a_split_keeps_sources_whole_and_comes_near_its_shares(numbers, seed, test, profiling):
    sources = [f"file{number}" for number in numbers]
    try:
        parts = split(sources, seed, Shares(test, profiling))
    except InputError:
        return  # a few large sources
    held = np.concatenate([parts.test, parts.profiling])
    assert sorted(np.concatenate([parts.fit, held])) == list(range(len(sources)))
    assert {sources[row] for row in parts.fit}.isdisjoint(sources[row] for row in held)
    share = test + profiling * (1 - test)
    assert 0 <= len(held) - share * len(sources) < max(map(sources.count, sources)) + 1e-9
    assert len(parts.test) == round(len(held) * test / share)
