"""A classifier that somebody brings is taken over as it is, with labelled texts, with texts alone, or is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

from pliant.errors import InputError
from pliant.flows.cascade.config import CascadeFlowConfig, LevelConfig, read
from pliant.flows.cascade.gate import EvaluatedCascade, judge
from pliant.flows.cascade.stages import TaskData, load_data, questions, run_task
from pliant.labelling import Label
from pliant.registry.store import FolderStore
from pliant.training.text_data import UNKNOWN
from tests.fixtures.architectures import tiny_config, written
from tests.fixtures.cascade.tiny import WORDS, setting, write_texts

KINDS = ("tree", "fruit", "metal")  # not in the alphabet's order


@pytest.fixture
def brought(tmp_path):
    """The setting of a classifier with random weights, whose classes a sample of texts has."""
    folder = tmp_path / "classifier"
    names = dict(enumerate(KINDS))
    config = tiny_config("bert", id2label=names, label2id={kind: number for number, kind in names.items()})
    written(folder, AutoModelForSequenceClassification, config)
    write_texts(tmp_path, count=300)
    level = {"name": "large", "start": f"path:{folder}", "fine_tune": False, "classifier": {"max_length": 32}}
    return setting(tmp_path, levels=[level])


def alone(brought, tmp_path) -> CascadeFlowConfig:
    task = {"data": None, "unlabelled": f"json:{tmp_path / 'things.jsonl'}", "name": "things"}
    return read(overrides={**brought, "tasks": [task]})


def result_of(config, tmp_path, labels=()):
    [data] = load_data(config)
    store = FolderStore(tmp_path / "store")
    task = TaskData(config.levels_of(config.tasks[0]), data, "", (), labels)
    return run_task(lambda stage, *args: stage.result(store, *args), config, task)


def test_with_labels_its_classes_keep_their_order_and_nothing_is_trained(brought, tmp_path):
    [data] = load_data(read(overrides=brought))
    assert data.classes == KINDS
    for text, label in zip(data.first, data.labels, strict=True):
        assert set(text.split()) & set(WORDS[KINDS[label]])
    result = result_of(read(overrides=brought), tmp_path)
    large = result.levels["large"].load()
    assert (large.classes, large.max_length) == (KINDS, 32)
    assert result.plan.load().promise == "drop" and result.linear is not None


def test_a_bag_begins_with_a_table_of_tokens_that_is_not_from_scratch(brought, tmp_path):
    config = read(overrides=brought)
    [data], [level] = load_data(config), config.levels_of(config.tasks[0])
    assert [_tokens_of(config, data, each) for each in (level, LevelConfig("large"))] == [True, False]


def _tokens_of(config, data, level):
    """Return whether the bag of this level may begin with its table of tokens."""
    given = []

    def run(stage, *args):
        if stage.task == "bag":
            given.append(args[0].distil.tokens)
            raise Interrupted
        return SimpleNamespace(load=lambda: SimpleNamespace(layers=()))

    with pytest.raises(Interrupted):
        run_task(run, config, TaskData((level,), data, ""))
    return given[0]


class Interrupted(Exception):  # noqa: N818
    """Ends a run."""


def test_with_texts_alone_all_that_is_said_is_of_its_own_answers(brought, tmp_path):
    config = alone(brought, tmp_path)
    result = result_of(config, tmp_path)
    plan, test = result.plan.load(), result.test.load()
    assert (result.texts.data.labels == UNKNOWN).all() and result.linear is None
    assert (plan.promise, plan.levels[-1].accuracy, plan.classes) == ("agree", 1.0, KINDS)
    assert plan.test_accuracy[plan.candidates[-1].name] <= 1.0
    verdict = judge(None, EvaluatedCascade(plan, test), config.gate, config.reference)
    assert verdict.passed, verdict.reason


def test_labels_that_people_gave_are_planned_with_and_not_wanted_again(brought, tmp_path):
    config = alone(brought, tmp_path)
    config = replace(config, plan=replace(config.plan, target=0.2))
    before = result_of(config, tmp_path)
    wanted = questions(config, before)
    assert len(wanted.texts) == 45 and wanted.classes == KINDS and "accuracy of 0.2" in wanted.purpose
    held = before.texts.held
    assert {text for text, _ in wanted.texts} <= {held.first[row] for row in held.split.profiling}
    given = tuple(Label(first, second, "tree", "me") for first, second in wanted.texts)
    after = result_of(config, tmp_path, given)
    assert (after.outputs.digest, after.levels["large"].key) != (before.outputs.digest, "")
    assert int(np.isfinite(after.outputs.load().labels).sum()) == 45
    assert questions(config, after).texts == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tasks": [{"data": None, "unlabelled": "json:x", "name": "t"}], "levels": setting(Path())["levels"]},
            "data is left out",
        ),
        ({"tasks": [{"data": None, "name": "t"}]}, "unlabelled or name is left out"),
    ],
)
def test_without_labels_nothing_can_be_trained(brought, changes, message):
    with pytest.raises(InputError, match=message):
        load_data(read(overrides={**brought, **changes}))


def test_a_label_that_it_does_not_know_is_refused_by_name(brought, tmp_path):
    with (tmp_path / "things.jsonl").open("a") as file:
        file.writelines(f'{{"text": "a cow {number}", "label": "animal"}}\n' for number in range(5))
    with pytest.raises(InputError, match="label is animal, but must be one of the classes of its classifier: tree"):
        load_data(read(overrides=brought))


@pytest.mark.parametrize("texts", [["an oak"] * 200, [f"an oak {number}" for number in range(20)]])
def test_texts_that_are_too_few_or_all_equal_are_refused(brought, tmp_path, texts):
    (tmp_path / "things.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    with pytest.raises(InputError, match=r"but must be (at least 40|enough for)"):
        load_data(alone(brought, tmp_path))


def test_a_level_that_is_not_trained_starts_from_something(tmp_path):
    with pytest.raises(InputError, match="start of level large is scratch, but must be path:FOLDER or hub:NAME"):
        read(overrides=setting(tmp_path, levels=[{"name": "large", "fine_tune": False}]))
