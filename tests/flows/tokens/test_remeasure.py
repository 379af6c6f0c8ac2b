"""The champion is compared on the rows that the challenger was tested on, where labelled pictures make these others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.flows.tokens.champions import comparable, to_measure
from pliant.flows.tokens.config import TokensFlowConfig, read
from pliant.flows.tokens.stages import Bundle
from pliant.registry.store import FolderStore
from pliant.training.data import ImageData, Split, digits
from pliant.training.tokens.labelled import LabelledPicture, join
from tests.fixtures.tokens.samples import POINTS, tiny_backbone, tiny_profile, tiny_task, with_points
from tests.fixtures.tokens.tiny import setting

GAMMAS = (-5, 0)


@pytest.fixture(scope="module")
def data() -> ImageData:
    """A few digits."""
    whole = digits("digit")
    split = whole.split
    return replace(whole, split=Split(split.fit[:20], split.profiling[:10], split.test[:20]))


@pytest.fixture(scope="module")
def joined(data) -> ImageData:
    rng = np.random.default_rng(0)
    pictures = [LabelledPicture(rng.integers(0, 256, (16, 16, 3), np.uint8), "3", "test") for _ in range(5)]
    return join(data, pictures, 0.2)


def champion(data: ImageData, classes: tuple[str, ...] | None = None) -> Bundle:
    """With accuracies that nobody measured."""
    task = with_points(tiny_task("digit", classes or data.classes, "sha256:b", gammas=()))
    task, shares = replace(task, data=data.fingerprint), dict.fromkeys((*GAMMAS, *POINTS), 2.0)
    task = replace(task, accuracy=shares, test_accuracy=shares)
    return Bundle(tiny_backbone(), (task,), tiny_profile("sha256:b", "cpu", GAMMAS))


def config(**changes) -> TokensFlowConfig:
    return read(overrides=setting(**changes))


def anew(bundle: Bundle, data: ImageData, store: FolderStore) -> Bundle:
    return comparable(lambda stage, *args: stage.result(store, *args), config(), bundle, [data], lambda name: name)


def test_without_labelled_pictures_nothing_is_measured_anew(data):
    assert to_measure(champion(data), [data]) == []
    assert to_measure(champion(replace(data, fingerprint="sha256:former")), [data]) == []


def test_with_new_ones_and_where_they_have_gone_the_champion_is_measured_on_the_challengers_rows(data, joined):
    for old, new in ((data, joined), (joined, data)):
        ((task, rows),) = to_measure(champion(old), [new])
        assert (task.name, rows) == ("digit", new)
    assert to_measure(champion(data), [replace(joined, name="loops")]) == []


def test_its_accuracies_are_those_of_the_rows(tmp_path, data, joined):
    pairs = ((FolderStore(tmp_path / "old"), joined, data), (FolderStore(tmp_path / "new"), data, joined))
    (old,), (new,) = (anew(champion(other), rows, store).tasks for store, other, rows in pairs)
    assert set(old.test_accuracy) == set(new.test_accuracy) == {*GAMMAS, *POINTS}
    for task, rows in ((old, data), (new, joined)):
        for share in task.test_accuracy.values():
            assert share * len(rows.split.test) == pytest.approx(round(share * len(rows.split.test)))
            assert 0 <= share <= 1
    assert np.array_equal(old.heads[0].weight, champion(data).tasks[0].heads[0].weight)


def test_classes_in_another_order_or_lacking_are_compared_by_name(tmp_path, data, joined):
    """Of a champion that has one class alone, every answer is that class."""
    mark = replace(data, fingerprint="labels:x:sha256:former")
    (alone,) = anew(champion(mark, ("3",)), joined, FolderStore(tmp_path / "a")).tasks
    share = np.mean([joined.classes[label] == "3" for label in joined.labels[joined.split.test]])
    assert alone.test_accuracy[0] == pytest.approx(share)
    (same,) = anew(champion(mark), joined, FolderStore(tmp_path / "b")).tasks
    backwards = champion(mark, data.classes[::-1])
    head = backwards.tasks[0].heads[0]
    turned = replace(
        backwards.tasks[0],
        heads={0: replace(head, weight=head.weight[::-1].copy(), bias=head.bias[::-1].copy())},
        points={},
        test_accuracy=dict.fromkeys(GAMMAS, 2.0),
    )
    (other,) = anew(replace(backwards, tasks=(turned,)), joined, FolderStore(tmp_path / "c")).tasks
    assert other.test_accuracy == {gamma: same.test_accuracy[gamma] for gamma in GAMMAS}
