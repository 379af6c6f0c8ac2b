"""What MLflow's pages say of versions, on a real store: true when they are made, released, replaced and taken back."""

from __future__ import annotations

import re

import pytest

from registry.mlflow_store import MlflowRegistry
from registry.mlflow_switch import TAKEN_BACK, switch
from tests.registry.conftest import BACKBONE, PROFILE, Shelf

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("standing")
    return MlflowRegistry(f"sqlite:///{folder / 'mlflow.db'}", "pliant-tokens", folder / "artifacts")


def said(registry: MlflowRegistry, name: str) -> list[str]:
    """The first line of each version's description, with moments as M."""
    client = registry.connect()
    texts = [client.get_model_version(name, str(number)).description for number in registry.numbers(name)]
    return [re.sub(MOMENT, "M", text.partition("\n")[0]) for text in texts]


def test_every_sentence_is_true_from_the_first_version_to_a_rollback(fresh: MlflowRegistry, shelf: Shelf):
    with fresh.run("first") as run:
        for name in ("backbone", "profile"):
            fresh.publish(run, shelf.package(name))
        assert said(fresh, BACKBONE) == ["Not served yet."]
        fresh.commit({BACKBONE: 1, PROFILE: 1}, run)
    assert said(fresh, BACKBONE) == said(fresh, PROFILE) == ["Served since M (release 1)."]
    with fresh.run("second") as run:
        fresh.publish(run, shelf.package("profile"))
        assert said(fresh, PROFILE) == ["Served since M (release 1).", "Not served yet."]
        fresh.commit({PROFILE: 2}, run)
    first = "Served until M, when version 2 took its place (release 2)."
    assert said(fresh, PROFILE) == [first, "Served since M (release 2)."]
    assert said(fresh, BACKBONE) == ["Served since M (release 1)."], "release 2 serves the same one"
    switch(fresh, "tokens", 1, "it was slow", TAKEN_BACK)
    second = "Served until M, when version 1 took its place (release 1)."
    assert said(fresh, PROFILE) == ["Served since M (release 1).", second]
    assert said(fresh, BACKBONE) == ["Served since M (release 1)."]
    about = fresh.connect().get_model_version(PROFILE, "2").description
    assert "Made while version 1 was served." in about and "still to come" not in about
    assert [fresh.release("tokens", number).state for number in (1, 2)] == ["", "taken back"]
    fresh.promote(PROFILE, 2)
    assert said(fresh, PROFILE)[1] == "Served since M (release 3)."
    assert fresh.release("tokens", 1).state == "left"
    assert fresh.connect().get_model_version("pliant-release-tokens", "3").description == "Made on top of release 1."
