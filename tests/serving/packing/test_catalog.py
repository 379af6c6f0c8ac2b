"""A model is loaded with its parts, of which only those that changed are fetched again; parts that do not fit are errors."""

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


def test_a_model_has_the_versions_and_texts_of_its_parts_and_no_weights(registry, tmp_path):
    catalog, fetched = loaded(registry)
    (model,) = catalog.models.values()
    assert fetched == [f"{PLAN}/1", f"{GENERATOR}/1", f"{PREDICTOR}/1"]
    assert catalog.pointers == {PLAN: 1, GENERATOR: 1, PREDICTOR: 1}
    assert (model.version, model.generator.version, model.predictor.version) == (1, 1, 1)
    made, kept = generator(), model.generator.artifact
    texts = (kept.config, kept.tokenizer, kept.chat_template)
    assert texts == (made.config, made.tokenizer, made.chat_template)
    assert (kept.context, kept.ends, model.predictor.artifact.marginal) == (CONTEXT, (0,), MARGINAL)
    assert (model.packing.generator, model.packing.predictor) == (model.generator.digest, model.predictor.digest)
    assert model.identity == ((1, model.digest), (1, model.generator.digest), (1, model.predictor.digest))
    assert catalog.folders == {tmp_path / GENERATOR / "1", tmp_path / PREDICTOR / "1"}
    assert registry.discarded == [(tmp_path / PLAN / "1").relative_to(tmp_path)], "plans stay in memory alone"


def test_only_what_changed_is_fetched_again(registry):
    first, _ = loaded(registry)
    same, fetched = loaded(registry, first)
    assert fetched == [] and same.models["tales"] is first.models["tales"] and same.serves_as(first)
    (model,) = first.models.values()
    registry.publish(PLAN, packing(model.generator.digest, model.predictor.digest, level=0.75))
    planned, fetched = loaded(registry, first)
    assert fetched == [f"{PLAN}/2"] and not planned.serves_as(first)
    assert planned.models["tales"].generator is model.generator
    assert planned.models["tales"].predictor is model.predictor
    other = registry.publish(PREDICTOR, predictor(model.generator.digest, max_length=32))
    registry.publish(PLAN, packing(model.generator.digest, other))
    predicted, fetched = loaded(registry, planned)
    assert fetched == [f"{PLAN}/3", f"{PREDICTOR}/2"]
    assert predicted.models["tales"].generator is model.generator
    registry.publish(GENERATOR, generator())  # the same one under a new version
    again, fetched = loaded(registry, predicted)
    assert fetched == [f"{PLAN}/3", f"{GENERATOR}/2"]
    assert not again.serves_as(predicted) and again.models["tales"].generator.version == 2


def test_parts_that_are_missing_or_not_those_of_the_plan_are_errors(registry, tmp_path):
    (model,) = loaded(registry)[0].models.values()
    digest = registry.publish(GENERATOR, generator(seed=9))
    sentence = (
        f"a model was planned with {model.generator.digest[:12]} of {GENERATOR}, but its champion (version 2) is "
        f"{digest[:12]}: promote the plan that was made with it"
    )
    with pytest.raises(ArtifactError) as error:
        loaded(registry)
    assert str(error.value) == sentence
    other = registry.publish(PREDICTOR, predictor("of some other generator"))
    registry.publish(PLAN, packing(digest, other))
    with pytest.raises(ArtifactError) as error:
        loaded(registry)
    assert str(error.value) == (
        f"{PREDICTOR} predicts lengths of generator of some othe, but this is {digest[:12]}: train a predictor for it"
    )
    assert (tmp_path / GENERATOR / "2").relative_to(tmp_path) in registry.discarded
    registry.champions.pop(PREDICTOR)
    with pytest.raises(ArtifactError, match=f"^{PREDICTOR} has no version under the alias champion$"):
        loaded(registry)
    with pytest.raises(ArtifactError, match=rf"^{PLAN} holds a plan that calls itself songs, but should be tales$"):
        registry.publish(PLAN, packing(digest, other, name="songs"))
        loaded(registry)
