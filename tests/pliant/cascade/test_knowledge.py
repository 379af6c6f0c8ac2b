"""What the scheduler knows of stored cascades: numbers of models, their workers and their seconds."""

from __future__ import annotations

import pytest

from pliant.cascade.artifact import Pruning
from pliant.cascade.knowledge import Knowledge, Model, Path, knowledge, numbers, placement, prunes
from pliant.errors import InputError
from tests.fixtures.cascade.loads import candidate, cascade, profile, table

PRUNED = Pruning("mass", 0.9)
NEWS = cascade(
    "news",
    (profile("small", 0.8, 0.3, 0.4), profile("large", 0.9, 1.0, 1.1)),
    candidate((0, 1), PRUNED),
    candidate((1,)),
)
PAIRS = cascade(
    "pairs",
    (profile("tiny", 0.6, 0.2), profile("small", 0.7, 0.5, 0.6), profile("large", 0.8, 1.5)),
    candidate((0, 2)),
    candidate((0, 1, 2)),
)


def test_models_are_numbered_over_tasks_and_levels():
    assert numbers([NEWS, PAIRS]) == {
        ("news", 0): 0,
        ("news", 1): 1,
        ("pairs", 0): 2,
        ("pairs", 1): 3,
        ("pairs", 2): 4,
    }


def test_a_path_is_a_candidate_in_numbers_of_models_with_the_first_levels_accuracy():
    known = knowledge([NEWS, PAIRS])
    assert known.tasks == {
        "news": (Path((0, 1), 0.8, (1.0, 1.0), 1), Path((1,), 0.9, (1.0,))),
        "pairs": (Path((2, 4), 0.6, (1.0, 1.0)), Path((2, 3, 4), 0.6, (1.0, 1.0, 1.0))),
    }
    own = knowledge([NEWS, PAIRS], 2, own=True)
    assert own.tasks["news"][0].instead is None, "the first model has a device of its own"
    assert [model.workers for model in known.models] == [(0,)] * 5
    known.check(1)


def test_only_a_level_whose_importances_are_used_is_reckoned_with_them():
    assert prunes(NEWS) == {0}
    assert prunes(PAIRS) == set()
    known = knowledge([NEWS, PAIRS])
    assert [model.latency for model in known.models] == [table(scale) for scale in (0.4, 1.0, 0.2, 0.5, 1.5)]


@pytest.mark.parametrize(
    ("levels", "workers", "own", "where"),
    [
        (3, 2, False, [(0, 1)] * 3),
        (3, 3, True, [(0,), (1,), (2,)]),
        (3, 2, True, [(0,), (1,), (1,)]),
        (3, 1, True, [(0,)] * 3),
        (2, 4, True, [(0,), (1,)]),
    ],
)
def test_placement(levels, workers, own, where):
    assert placement(levels, workers, own) == where


@pytest.mark.parametrize("workers", [(), (1,), (-1,)])
def test_a_model_on_no_worker_is_refused(workers):
    with pytest.raises(InputError, match="workers of model 0"):
        Knowledge((Model(table(1.0), workers),), {"news": (Path((0,), 0.5),)}).check(1)


@pytest.mark.parametrize("models", [(), (1,), (-1,)])
def test_a_path_without_a_model_is_refused(models):
    with pytest.raises(InputError, match="models of news"):
        Knowledge((Model(table(1.0), (0,)),), {"news": (Path(models, 0.5),)}).check(1)
