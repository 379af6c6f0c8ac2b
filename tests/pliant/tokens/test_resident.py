"""The prompts and heads of all tasks in one tensor each, which a captured graph may hold by address."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pliant.tokens.resident import ResidentAdapters
from tests.fixtures.tokens.samples import DEPTH, WIDTH, tiny_task

CPU = torch.device("cpu")


def tasks(count: int, classes: int = 3, gammas: tuple[int, ...] = (2, 4), first: int = 0):
    names = [f"c{number}" for number in range(classes)]
    return [tiny_task(f"task{seed}", names, "digest", seed, gammas) for seed in range(first, first + count)]


def resident(spare: bool, dtype: torch.dtype = torch.float32) -> ResidentAdapters:
    return ResidentAdapters(CPU, dtype, spare)


def addresses(adapters: ResidentAdapters) -> list[int]:
    return [
        tensor.data_ptr()
        for at in adapters.at.values()
        for tensor in (at.weight_TKD, at.bias_TK, at.prompts_TLGD)
        if tensor.numel()
    ]


@pytest.mark.parametrize(("spare", "rows", "places"), [(False, 2, 4), (True, 8, 8)])
def test_each_task_has_a_row_in_order_and_a_class_that_it_lacks_has_no_probability(spare, rows, places):
    adapters, (small, large) = resident(spare), (*tasks(1, 2), *tasks(1, 4, first=1))
    assert adapters.fill([small, large])
    for gamma in (0, 2, 4):
        at = adapters.at[gamma]
        assert at.weight_TKD.shape == (rows, places, WIDTH) and at.bias_TK.shape == (rows, places)
        for row, (task, classes) in enumerate([(small, 2), (large, 4)]):
            np.testing.assert_array_equal(at.weight_TKD[row, :classes], task.head(gamma).weight)
            np.testing.assert_array_equal(at.bias_TK[row, :classes], task.head(gamma).bias)
            assert not at.weight_TKD[row, classes:].any() and (at.bias_TK[row, classes:] == -torch.inf).all()
        assert (at.bias_TK[2:] == -torch.inf).all()


def test_prompts_are_those_of_the_gamma_and_there_are_none_at_gamma_0():
    adapters, both = resident(True, torch.float64), tasks(2)
    adapters.fill(both)
    assert adapters.at[0].prompts_TLGD.shape == (8, 0, 0, 0)
    prompts = adapters.at[4].prompts_TLGD
    assert prompts.shape == (8, DEPTH, 4, WIDTH) and prompts.dtype == torch.float64
    assert adapters.at[4].weight_TKD.dtype == torch.float32, "a head costs next to nothing"
    np.testing.assert_array_equal(prompts[1], both[1].prompts[4])
    assert not prompts[2:].any()


def test_tasks_that_fit_into_the_room_keep_its_addresses():
    adapters = resident(True)
    assert adapters.fill(tasks(1))
    before, more = addresses(adapters), tasks(8, 8, first=3)
    assert not adapters.fill(more)
    assert addresses(adapters) == before
    np.testing.assert_array_equal(adapters.at[2].weight_TKD[7], more[7].head(2).weight)
    np.testing.assert_array_equal(adapters.at[2].prompts_TLGD[7], more[7].prompts[2])
    np.testing.assert_array_equal(adapters.at[2].bias_TK[7], more[7].head(2).bias)


@pytest.mark.parametrize(
    "more", [tasks(9), tasks(1, 9), tasks(1, gammas=(2,)), tasks(1, gammas=(2, 4, 8)), []], ids=lambda more: len(more)
)
def test_tasks_that_do_not_fit_get_tensors_of_their_own(more):
    adapters = resident(True)
    adapters.fill(tasks(1))
    before = addresses(adapters)
    assert adapters.fill(more)
    assert not set(before) & set(addresses(adapters)) or not more
