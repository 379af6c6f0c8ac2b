"""What the packing flow is told: a default, short forms of the command line, and what is refused."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.flows.packing.config import MemoryConfig, PackingFlowConfig, read


def test_nothing_given_is_the_embedded_generator_asked_about_docstrings():
    config = read()
    assert config == PackingFlowConfig(memory=MemoryConfig(pages=48))
    assert (config.name, config.generator, config.prompts) == ("docstrings", "embedded", "docstrings")


def test_an_address_of_prompts_may_carry_the_models_name():
    config = read(overrides={"data": ["mine=parquet:a.parquet"], "limit": 50, "predictor": "path:encoder"})
    assert (config.name, config.prompts) == ("mine", "parquet:a.parquet")
    assert config.lengths.requests == 50
    assert config.predictor.encoder == "path:encoder"
    assert read(overrides={"predictor": {"epochs": 2}}).predictor.epochs == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nme": "x"}, "did you mean name"),
        ({"plan": {"level": [1.0]}}, "did you mean plan.levels"),
        ({"name": "../up"}, "letters, digits"),
        ({"name": "generator-mine"}, "not to begin with generator-"),
        ({"generator": "mine"}, "embedded, path:FOLDER or hub:NAME"),
        ({"precision": "int8"}, "precision is int8, but must be one of auto, float32, bfloat16, float16"),
        ({"limit": 5}, "lengths.requests is 5, but must be at least 20"),
        ({"lengths": {"held_out": 1.0}}, "between 0 and 1"),
        ({"lengths": {"temperature": -1.0}}, "at least 0"),
        ({"memory": {"megabytes": 0}}, "above 0"),
        ({"plan": {"levels": []}}, "at least one"),
        ({"gate": {"seeds": 0}}, "at least 1 seed"),
        ({"retrain": {"least": 5}}, "from 20"),
        ({"retrain": {"weight": 0.0}}, "above 0"),
        ({"reference": {"requests": 0}}, "at least 1"),
        ({"threads": 0}, "at least 1"),
        ({"embedded": {"width": 13}}, "multiple of twice the heads"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(values, words):
    with pytest.raises(InputError, match=words):
        read(overrides=values)
