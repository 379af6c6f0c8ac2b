"""Names of models lead back to their system; locks, releases and strangers' models belong to none."""

from __future__ import annotations

import pytest

from pliant import systems
from pliant.registry import names

SYSTEMS = systems.names()


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
