"""A model is loaded with its parts, of which only those that changed are fetched again; parts that do not fit are errors.

What catalogs of all systems have in common is tested in tests/serving/test_catalogs.py.
"""

from __future__ import annotations

import pytest

from pliant.errors import ArtifactError
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.serving.packing.catalog import Catalog, load_catalog
from tests.fixtures.packing.in_process import CONTEXT, MARGINAL, generator, packing, predictor

GENERATOR, PREDICTOR, PLAN = PACKING_GENERATOR + "tales", PACKING_PREDICTOR + "tales", PACKING_PREFIX + "tales"


def loaded(registry, running=None) -> tuple[Catalog, list[str]]:
    """Return the catalog, and what was fetched for it."""
    registry.fetched.clear()
    return load_catalog(registry, "champion", running), list(registry.fetched)


def test_only_what_changed_is_fetched_again(registry, tmp_path):
    first, fetched = loaded(registry)
    assert fetched == [f"{PLAN}/1", f"{GENERATOR}/1", f"{PREDICTOR}/1"]
    assert first.folders == {tmp_path / GENERATOR / "1", tmp_path / PREDICTOR / "1"}
    assert registry.discarded == [(tmp_path / PLAN / "1").relative_to(tmp_path)], "plans stay in memory alone"
    (model,) = first.tasks.values()
    assert model.identity == ((1, model.digest), (1, model.generator.digest), (1, model.predictor.digest))
    assert (model.generator.artifact.context, model.predictor.artifact.marginal) == (CONTEXT, MARGINAL)
    registry.publish(PLAN, packing(model.generator.digest, model.predictor.digest, level=0.75))
    planned, fetched = loaded(registry, first)
    assert fetched == [f"{PLAN}/2"] and not planned.serves_as(first)
    assert planned.tasks["tales"].generator is model.generator
    assert planned.tasks["tales"].predictor is model.predictor
    other = registry.publish(PREDICTOR, predictor(model.generator.digest, max_length=32))
    registry.publish(PLAN, packing(model.generator.digest, other))
    predicted, fetched = loaded(registry, planned)
    assert fetched == [f"{PLAN}/3", f"{PREDICTOR}/2"] and predicted.tasks["tales"].generator is model.generator
    registry.publish(GENERATOR, generator())  # the same one under a new version
    again, fetched = loaded(registry, predicted)
    assert fetched == [f"{PLAN}/3", f"{GENERATOR}/2"] and not again.serves_as(predicted)


def test_parts_that_are_not_those_of_the_plan_are_errors(registry):
    model = loaded(registry)[0].tasks["tales"]
    digest = registry.publish(GENERATOR, generator(seed=9))
    with pytest.raises(ArtifactError) as error:
        loaded(registry)
    assert str(error.value) == (
        f"model tales was planned with generator {model.generator.digest[:12]}, but champion of {GENERATOR} (version 2) "
        f"is {digest[:12]}: promote the plan that was made with it"
    )
    other = registry.publish(PREDICTOR, predictor("of some other generator"))
    for changes, sentence in (
        ({}, f"{PREDICTOR} predicts lengths of generator of some othe, but this is {digest[:12]}: train a predictor"),
        ({"name": "songs"}, f"{PLAN} holds a plan that calls itself songs, but should be tales$"),
    ):
        registry.publish(PLAN, packing(digest, other, **changes))
        with pytest.raises(ArtifactError, match=f"^{sentence}"):
            loaded(registry)
