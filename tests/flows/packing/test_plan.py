"""How a plan is made: pages, the policy's parameters by the simulator, and whether the predictor keeps up."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.flows.packing import plan as pace
from pliant.flows.packing import stages as measure
from pliant.flows.packing.config import MemoryConfig, PackingFlowConfig, PlanConfig
from pliant.flows.packing.plan import Pace, choose, describe, excess
from pliant.flows.packing.publish import card
from pliant.flows.packing.stages import fitting_memory, token_bytes, weight_bytes
from pliant.packing.scheduling.reference import ReferenceConfig, capacity
from pliant.profiling.packing.pace import PredictorPace
from pliant.progress import silent
from pliant.registry.releases import COLUMN
from tests.fixtures.packing.in_process import packing
from tests.fixtures.packing.tiny import CONTEXT, some_packing, some_predictor

SHORT = ReferenceConfig(quiet=(0.8,), loud=(1.5,), requests=60)
SHAPE = json.dumps({"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64})
GENERATOR = SimpleNamespace(
    context=CONTEXT, config=SHAPE, precision="float32", weights={"a": np.zeros(1000, np.float32)}
)


def test_the_bytes_are_those_that_the_model_really_caches():
    """A real model's own cache is asked."""
    import torch

    from pliant.packing.engine.model import load_generator
    from tests.fixtures.packing.generators import tiny_generator

    generator = tiny_generator()
    with torch.no_grad():
        cache = load_generator(generator)(torch.tensor([[1, 2, 3]]), use_cache=True).past_key_values
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert token_bytes(generator.config, "float32") == held // 3


def test_without_a_number_the_pages_are_as_many_as_the_device_has_room_for(monkeypatch):
    page = 16 * token_bytes(GENERATOR.config, GENERATOR.precision)
    monkeypatch.setattr(measure, "free_bytes", lambda device: weight_bytes(GENERATOR) + 100 * page)
    for device, pages in (("cpu", 50), ("cuda:1", 90)):
        config = PackingFlowConfig(memory=MemoryConfig(host_pages=0), device=device)
        assert fitting_memory(config, GENERATOR).pages == pages


def test_more_pages_than_there_is_room_for_are_refused_with_the_numbers_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(measure, "free_bytes", lambda device: 1 << 30)
    config = PackingFlowConfig(memory=MemoryConfig(megabytes=2000, sequences=10**6, step_tokens=10**6), device="cuda")
    with pytest.raises(
        InputError, match=r"memory is \d+ pages .*, but must be at most 1 GiB in all, which cuda has free"
    ):
        measure.measure(config, GENERATOR, silent)


def test_the_pair_that_completes_soonest_within_the_limits_is_taken_of_the_whole_grid():
    config = PlanConfig(levels=(0.0, 1.0, 2.0), patience=(0.25, 4.0))
    choice = choose(some_packing(), CONTEXT, config, SHORT)
    assert [(figures.level, figures.patience) for figures in choice.tried] == [*product(config.levels, config.patience)]
    paged = choice.policies[1]
    fit = [figures for figures in choice.tried if excess(figures, paged, config) == 0]
    assert fit and choice.within
    assert choice.policies[0] == min(fit, key=lambda figures: figures.mean)
    assert (choice.level, choice.patience) == (choice.policies[0].level, choice.policies[0].patience)


def test_where_no_pair_keeps_the_limits_the_one_that_misses_them_least_is_taken_and_it_is_said():
    config = PlanConfig(levels=(1.0, 2.0), patience=(1.0, 4.0), tail=0.01)
    choice = choose(some_packing(), CONTEXT, config, SHORT)
    assert not choice.within
    paged = choice.policies[1]
    assert choice.policies[0] == min(choice.tried, key=lambda figures: excess(figures, paged, config))
    assert "keeps the plan's limits" in describe(choice)


def test_a_card_says_what_the_served_predictor_saves_with_an_interval_and_what_else_was_tried():
    judged = {"bucket_accuracy": 0.6, "majority_class": 0.5, "pinball": 0.1, "encoder_pinball": 0.1}
    judged |= {"linear_pinball": 0.2, "constant_pinball": 0.3, "majority_pinball": 0.4, "tau": 0.25}
    predictor = replace(some_predictor(), metrics=judged)
    said = card(some_packing(), predictor, {"before": {"pinball": 0.25}}).replace(COLUMN, " | ")
    assert "200 held-out prompts. The class of length is right for 60.0% (52.9% to 66.8%)" in said
    assert "| encoder | 0.1 | +0.1332 (+0.1169 to +0.1496) | yes |\n| linear | 0.2 | +0.1000 | no |\n" in said
    assert "| before it was trained further | 0.25 | +0.0500 | no |\n| the most frequent class | 0.4 | -0.1000" in said
    same = some_packing(forecasts=np.broadcast_to(predictor.marginal, (200, len(predictor.marginal))))
    assert "| encoder | 0.1 | +0.0000 (" in card(same, predictor, {}).replace(COLUMN, " | ")


FAST, SLOW = Pace(0.001, 900.0, 40.0), Pace(0.001, 30.0, 40.0)


def test_a_predictor_keeps_up_if_one_forecast_is_in_time_and_as_many_are_as_the_engine_bears():
    assert FAST.keeps_up
    assert not SLOW.keeps_up
    assert not Pace(0.06, 900.0, 40.0).keeps_up


@pytest.mark.parametrize(("speed", "warned"), [(1e9, False), (1e-9, True)])
def test_one_that_does_not_keep_up_is_a_warning(monkeypatch, caplog, speed, warned):
    asked = []
    monkeypatch.setattr(pace.pace, "measure", lambda *what: asked.append(what) or PredictorPace(0.001, speed))
    plan = packing("g", "p")
    found = pace.measure_pace("a predictor", ["a prompt"], plan, "cuda")
    assert found == Pace(0.001, speed, capacity(plan)) and asked == [("a predictor", ["a prompt"], "cuda")]
    assert caplog.messages == ([f"tales: {found.describe()}"] if warned else [])
