"""The stages that distil levels from the large model: what they learn from, what is left out, and how they are measured."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pliant.cascade.artifact import BAG, CLASSIFIER, EXIT, Bag, Exit
from pliant.cascade.bag import BagModel
from pliant.flows.cascade.config import LearnConfig, read
from pliant.flows.cascade.feedback import texts_of
from pliant.flows.cascade.stages import (
    LESSON,
    OUTPUTS,
    distilled,
    load_data,
    load_unlabelled,
    make_lesson,
    measure,
    readings_of,
    taught,
)
from pliant.flows.feedback import FeedbackConfig
from pliant.flows.stage import StageResult
from pliant.models.artifact import Classifier
from pliant.models.classifier import load_model
from pliant.progress import silent
from pliant.registry.store import FolderStore
from tests.fixtures.cascade.artifacts import things
from tests.fixtures.cascade.classifiers import tiny_classifier
from tests.fixtures.cascade.lessons import changed_rows, write_outcomes
from tests.fixtures.cascade.tiny import setting, write_texts

MORE = (("an apple of gold", None), ("one birch", None), ("the tin and the pear of an oak", None))


@pytest.fixture
def config(tmp_path):
    write_texts(tmp_path)
    return read(overrides=setting(tmp_path))


@pytest.fixture
def data(config):
    """With eight texts to train on."""
    [data] = load_data(config)
    return replace(data, split=replace(data.split, fit=data.split.fit[:8]))


def stored(folder, classifier) -> StageResult[Classifier]:
    store = FolderStore(folder)
    return StageResult(Classifier, store, "cascade/large", store.save("cascade/large", classifier))


@pytest.fixture
def large(tmp_path, data):
    return stored(tmp_path, tiny_classifier("large", classes=data.classes, layers=3))


def test_a_lesson_is_what_the_large_model_says_of_each_text_alone_and_what_its_layers_make_of_it(config, data, large):
    config = replace(config, distil=replace(config.distil, exits=(1, 2)))
    learnt, notes = make_lesson(config, data, MORE, large, silent)
    texts = [*data.texts(data.split.fit), *MORE]
    assert (learnt.layers, len(learnt.logits), dict(notes)) == ((1, 2), len(texts), {})
    model = load_model(large.load())
    for row, (ids, types) in enumerate(readings_of(large.load(), texts)):
        given = {
            "input_ids": torch.tensor(ids[None].astype(int)),
            "token_type_ids": torch.tensor(types[None].astype(int)),
        }
        with torch.no_grad():
            said = model(**given, output_hidden_states=True)
        np.testing.assert_allclose(learnt.logits[row], said.logits[0], atol=1e-5)
        for place, layers in enumerate(learnt.layers):
            hidden_ND = said.hidden_states[layers][0]
            expected_F = np.concatenate([hidden_ND.mean(0), hidden_ND.amax(0)])
            np.testing.assert_allclose(learnt.features[place, row], expected_F, atol=1e-5)
    assert learnt.labels[: -len(MORE)].tolist() == data.labels[data.split.fit].tolist()
    assert np.isnan(learnt.labels[-len(MORE) :]).all()


def test_a_bag_and_exits_of_the_large_model_stand_before_the_classifiers(config, data, large, tmp_path):
    """And are made once: the second time only the store is asked."""
    store, made = FolderStore(tmp_path), []

    def run(stage, *args):
        made.append((stage.task, stage.kept(store, stage.key(*args)) is None))
        return stage.result(store, *args)

    for new in (True, False):
        made.clear()
        levels = distilled(run, config, data, MORE, {"large": large})
        assert made == [("lesson", new), ("bag", new), ("exit", new)]
    assert list(levels) == ["bag", "exit1", "large"]
    bag, head = levels["bag"].load(), levels["exit1"].load()
    assert isinstance(bag, Bag) and isinstance(head, Exit)
    assert bag.large == head.large == large.digest and bag.classes == head.classes == data.classes
    assert (head.layers, bag.tokenizer) == (1, large.load().tokenizer)
    readings = readings_of(large.load(), data.texts(data.split.fit))
    assert np.ptp(BagModel(bag).logits_of(readings), axis=0).min() > 0
    assert levels["bag"].notes["texts"] == len(readings) + len(MORE)


def test_nothing_is_asked_of_the_large_model_where_nothing_is_to_be_distilled(config, data, large):
    alone = replace(config, distil=replace(config.distil, bag=False, exits=()))
    assert distilled(None, alone, data, (), {"large": large}) == {"large": large}


def test_a_large_model_that_cannot_be_cut_gets_a_bag_alone_and_it_is_said_why(config, data, tmp_path, capsys):
    whole = stored(tmp_path, tiny_classifier("large", "t5", classes=data.classes))
    store = FolderStore(tmp_path)
    levels = distilled(lambda stage, *args: stage.result(store, *args), config, data, (), {"large": whole})
    assert list(levels) == ["bag", "large"]
    reason = "things: its large model gets no exits: T5ForSequenceClassification cannot be cut behind 1 of its layers"
    assert reason in capsys.readouterr().err
    notes = LESSON.result(store, config, data, (), whole).notes
    assert notes["exits"].startswith("T5ForSequenceClassification cannot be cut")


def test_a_large_model_of_one_layer_gets_no_exit(config, data, tmp_path):
    single = stored(tmp_path, tiny_classifier("large", classes=data.classes, layers=1))
    learnt, notes = make_lesson(config, data, (), single, silent)
    assert (learnt.layers, learnt.features.shape, notes) == ((), (0, 8, 0), {})


def write_more(folder, texts):
    path = folder / "more.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return f"json:{path}"


def test_texts_without_labels_change_what_is_learnt_and_held_out_ones_are_left_out(
    config, data, large, tmp_path, capsys
):
    held = [data.first[row] for row in (*data.split.profiling[:2], *data.split.test[:1])]
    fresh = [text for text, _ in MORE]
    [task] = config.tasks
    task = replace(task, unlabelled=write_more(tmp_path, [held[0].upper(), *fresh, *held[1:], fresh[0]]))
    assert load_unlabelled(task, data) == MORE
    assert "things: 3 texts without labels are read; 3 more are held out." in capsys.readouterr().err
    none, some = LESSON.key(config, data, (), large), LESSON.key(config, data, MORE, large)
    assert none != some != LESSON.key(config, data, MORE[:2], large)
    lessons = [make_lesson(config, data, texts, large, silent)[0] for texts in ((), MORE)]
    assert lessons[0].data != lessons[1].data


def test_kept_texts_that_plan_or_judge_are_not_distilled_from(config, data, tmp_path):
    """A bag that learnt the large model's answers to them would agree more often on them than on new texts."""
    rows = changed_rows(80)
    outcomes = write_outcomes(tmp_path / "outcomes", rows)
    config = replace(config, feedback=FeedbackConfig(str(outcomes)), learn=LearnConfig(rows=40))
    sent = tuple((text.upper(), None) for text, _ in rows)
    texts = texts_of(config, data, (*sent, *MORE))
    assert texts.unlabelled == MORE and len(texts.held.split.profiling) >= 40


@pytest.mark.parametrize(("labelled", "wrong", "teaches"), [(120, 40, False), (120, 0, True), (20, 20, True)])
def test_kept_texts_teach_nothing_where_labels_show_the_large_model_to_be_the_worse_one(
    labelled, wrong, teaches, config, data, tmp_path, capsys
):
    """Of changed texts it may know less than what was distilled on the former ones."""
    write_outcomes(tmp_path / "kept", [(text, None) for text, _ in changed_rows(40)] + changed_rows(200, seed=8))
    config = replace(
        config,
        feedback=FeedbackConfig(str(tmp_path / "kept")),
        learn=LearnConfig(rows=60),
        distil=replace(config.distil, bag=False, exits=()),
    )
    texts, label_R = texts_of(config, data, MORE), np.full(150, np.nan)
    label_R[:labelled] = 1
    bag, large = (np.tile([0.0, 1.0, 0.0], (150, 1)) for _ in range(2))
    large[:wrong, 2] = 2.0
    outputs = SimpleNamespace(labels=label_R, levels=[SimpleNamespace(logits=each) for each in (bag, large)])

    def run(stage, _config, held, levels, split):
        assert (stage, held, levels, split) == (OUTPUTS, texts.held, {}, "profiling")
        return SimpleNamespace(load=lambda: outputs)

    assert set(MORE) < set(texts.unlabelled)
    assert taught(run, config, texts, MORE, {}) == (texts.unlabelled if teaches else MORE)
    assert ("right on 66.7% of the labelled texts" in capsys.readouterr().err) is not teaches


def test_every_level_is_measured_alone_and_behind_the_exits_before_it_on_the_same_layers(config):
    sample = things(distilled=True, digests=("large",))
    small = tiny_classifier("small", classes=sample.texts.classes)
    bag, head, large = sample.levels
    levels = {"bag": bag, "exit1": replace(head, large="large"), "small": small, "large": large}
    profiled = measure(config, levels, silent).levels
    assert [level.kind for level in profiled] == [BAG, EXIT, CLASSIFIER, CLASSIFIER]
    assert [(level.trunk, level.layers) for level in profiled] == [("", 0), ("large", 1), ("", 0), ("", 0)]
    assert [[each.layers for each in level.resumed] for level in profiled] == [[], [], [], [1]]
    assert [level.importance is not None for level in profiled] == [False, False, True, False]
    assert [level.latency.batches for level in profiled] == [(1,), (1, 2), (1, 2), (1, 2)]
    assert profiled[-1].resumed[0].latency.settings == profiled[-1].latency.settings
