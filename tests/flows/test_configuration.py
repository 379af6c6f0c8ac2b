"""What a flow was asked to train: what a release keeps of it, what a nightly run takes, and tasks that nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pliant.errors import InputError, PliantError, RegistryError
from pliant.flows import configuration, settings
from pliant.flows.configuration import Configuration
from pliant.redaction import MASK
from pliant.registry.names import task_of
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.tokens.samples import tiny_backbone

A, B = "pliant-cascade-task-a", "pliant-cascade-task-b"
NEW = "task 'b' is not in the live release of cascade (a): name it in --config FILE or pass --new-task"


@pytest.fixture
def project(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "home"))
    return settings.read()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch) -> FolderRegistry:
    registry = FolderRegistry(tmp_path / "registry")
    monkeypatch.setattr(configuration, "open_registry", lambda *_: registry)
    return registry


def release(registry: FolderRegistry, *names: str, **texts: str) -> None:
    """Release tasks, each with a level, with the configurations that made them."""
    for name in names:
        for model in (f"pliant-cascade-task-{name}", f"pliant-cascade-model-{name}-small"):
            registry.publish(model, tiny_backbone())
    registry.commit("cascade")
    made = {f"pliant-cascade-task-{name}": text for name, text in texts.items()}
    registry.releases[-1] = replace(registry.releases[-1], configurations=made)


def beneath(values, home: Path) -> dict:
    return {} if "feedback" in values else {"feedback": {"outcomes": str(home / "outcomes" / "cascade")}}


def given(project, config: Path | None = None, nightly: bool = False, **overrides) -> list[Configuration]:
    return configuration.to_train(
        project, "cascade", str(config) if config else None, overrides, beneath if nightly else None
    )


def kept(project, one: Configuration, *models: str, new_task: bool = False) -> dict[str, str]:
    return configuration.to_keep(project, "cascade", one, models, new_task, ("tasks", "data"))


def test_whatever_the_first_release_is_asked_for_it_may_train(project, registry):
    (one,) = given(project)
    assert kept(project, one, A, B) == dict.fromkeys((A, B), one.to_json([A, B]))


def test_a_task_beside_the_live_ones_is_refused_unless_a_file_or_new_task_names_it(project, registry, tmp_path):
    release(registry, "a")
    (one,) = given(project, data=["b=csv:b.csv"])
    with pytest.raises(PliantError) as error:
        kept(project, one, B)
    assert str(error.value) == NEW
    assert set(kept(project, one, B, new_task=True)) == {B}
    assert set(kept(project, one, A)) == {A}, "one that is served needs no leave"
    file = tmp_path / "b.toml"
    file.write_text('[[tasks]]\ndata = "csv:b.csv"\nname = "b"\n')
    (named,) = given(project, file)
    assert set(kept(project, named, A, B)) == {A, B}
    (other,) = given(project, file, data=["c=csv:c.csv"])
    with pytest.raises(PliantError, match="task 'b' is not in"):
        kept(project, other, B)
    file.write_text("seed = 3\n")
    (silent,) = given(project, file)
    with pytest.raises(PliantError, match="task 'b' is not in"):
        kept(project, silent, B)


def test_a_nightly_run_takes_each_configuration_of_the_live_release_with_labels_where_it_says_nothing_of_them(
    project, registry
):
    first = Configuration({"seed": 1}, {"data": ["a=csv:a.csv"]}).to_json([A])
    second = Configuration({"feedback": {"outcomes": "mine"}}, {}).to_json([B])
    release(registry, "a", "b", a=first, b=second)
    one, two = sorted(given(project, nightly=True, threads=2), key=lambda each: sorted(each.tasks))
    outcomes = {"outcomes": str(project.home / "outcomes" / "cascade")}
    assert one.source == {"seed": 1}
    assert one.laid_over == {"data": ["a=csv:a.csv"], "feedback": outcomes, "threads": 2}
    assert (two.source, two.laid_over) == ({"feedback": {"outcomes": "mine"}}, {"threads": 2})
    again = Configuration(one.file, {"data": ["a=csv:a.csv"]}, beneath=one.beneath).to_json([A])
    assert again == first, "what a night adds is not kept"
    with pytest.raises(PliantError, match="task 'c' is not in"):
        kept(project, one, A, "pliant-cascade-task-c")
    assert kept(project, replace(one, tasks=frozenset({A, "pliant-cascade-task-c"})), "pliant-cascade-task-c")


def test_without_a_release_or_without_a_configuration_in_it_nothing_is_trained_at_night(project, registry):
    with pytest.raises(RegistryError, match="cascade has no release whose configuration could be trained with"):
        given(project, nightly=True)
    release(registry, "a")
    with pytest.raises(RegistryError, match="release 1 of cascade keeps no configuration, as an earlier version"):
        given(project, nightly=True)


def test_secrets_are_not_kept_and_a_nightly_run_that_lacks_them_says_so(project, registry):
    text = Configuration({}, {"data": ["a=hub:https://me:hunter22@example.org/a"]}).to_json([A])
    assert "hunter22" not in text and MASK in text
    release(registry, "a", a=text)
    with pytest.raises(RegistryError, match="had a secret, which was left out: name a file with --config FILE"):
        given(project, nightly=True)


def test_a_configuration_that_no_release_could_keep_is_refused_before_anything_is_trained(project, registry):
    with pytest.raises(InputError, match=r"length of the configuration is .*, but must be at most 90000 characters"):
        kept(project, Configuration({}, {"data": ["x" * 100_000]}), A)


def test_which_registered_models_are_tasks():
    tasks = {
        "pliant-tokens-task-digit": "digit",
        "pliant-tokens-backbone": None,
        "pliant-bins-mail": "mail",
        "pliant-bins-encoder-mail": None,
        "pliant-cascade-task-package": "package",
        "pliant-cascade-model-package-small": None,
        "pliant-packing-docstrings": "docstrings",
        "pliant-packing-predictor-docstrings": None,
        "somebodys-model": None,
    }
    assert {name: task_of(name) for name in tasks} == tasks
