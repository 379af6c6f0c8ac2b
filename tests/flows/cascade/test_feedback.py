"""Labelled answers as rows of a data set, and the keys of what is made of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Outputs
from pliant.flows.cascade.config import LearnConfig, read
from pliant.flows.cascade.feedback import label_rows, make_pool, rows_of, taught, training_data
from pliant.flows.cascade.stages import LEVEL, OUTPUTS, load_data
from pliant.flows.feedback import FeedbackConfig, part_of_input
from pliant.flows.stage import StageResult
from pliant.models.artifact import Classifier
from pliant.outcomes.files import LABELS
from pliant.progress import silent
from pliant.registry.store import FolderStore
from tests.fixtures.cascade.lessons import TENANTS, changed_rows, lesson, record, write_outcomes
from tests.fixtures.cascade.tiny import setting, some_outputs, write_texts

LEVELS = {name: StageResult(Classifier, None, f"cascade/{name}", f"sha256:{name}") for name in ("small", "large")}
LEARN = LearnConfig()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    write_texts(path)
    write_texts(path, "pairs", pair=True)
    return path


@pytest.fixture(scope="module")
def data(folder):
    return load_data(read(overrides=setting(folder)))[0]


def lessons(count: int = 100):
    return [lesson(number, [text], label) for number, (text, label) in enumerate(changed_rows(count))]


def test_lessons_plan_and_judge_and_train_only_where_a_setting_says_so(data):
    plain, learnt = rows_of(lessons(), data, LEARN), rows_of(lessons(), data, LearnConfig(levels=True))
    parts = [part_of_input(each.input) for each in lessons()]
    assert [len(plain.split.fit), len(plain.split.test)] == [0, parts.count("test")]
    assert len(plain.split.profiling) == 100 - parts.count("test")
    assert [len(rows) for rows in (learnt.split.fit, learnt.split.profiling, learnt.split.test)] == [
        parts.count(part) for part in ("fit", "profiling", "test")
    ]
    for rows in (plain, learnt):
        assert rows.first == tuple(text for text, _ in changed_rows(100))
        assert [data.classes[label] for label in rows.labels] == [label for _, label in changed_rows(100)]


def test_a_text_is_in_one_split_only_however_often_it_was_sent(data):
    twice = [lesson(number, [text], label) for number, (text, label) in enumerate(changed_rows(60) * 2)]
    rows = rows_of(twice, data, LEARN)
    planning, test = ({rows.first[row] for row in part} for part in (rows.split.profiling, rows.split.test))
    assert not planning & test


def test_a_text_counts_once_to_plan_and_judge_with_and_not_at_all_where_it_is_trained_on(data):
    """One text that was sent and labelled many times once proved a promise by itself."""
    trained = [data.first[row].upper() for row in data.split.fit[:20]]
    sent = [*lessons(60), *lessons(60)] + [lesson(1000 + n, [text], "tree") for n, text in enumerate(trained)]
    split = rows_of(sent, data, LEARN).split
    assert len(split.profiling) + len(split.test) == len({text for text, _ in changed_rows(60)})


@pytest.mark.parametrize(
    ("texts", "label", "form"),
    [
        (["an oak", "an elm"], "tree", "json"),
        ([], "tree", "json"),
        ([""], "tree", "json"),
        (["\ud800"], "tree", "json"),
        ([7], "tree", "json"),
        ("an oak", "tree", "json"),
        (["an oak"], "animal", "json"),
        (["an oak"], 2.0, "json"),
        (["an oak"], "tree", "uint8 1 1 3"),
    ],
)
def test_a_lesson_that_does_not_fit_the_task_is_left_out(data, texts, label, form):
    rows = rows_of([*lessons(), lesson(1000, texts, label, form)], data, LEARN)
    assert len(rows.first) == 100


def test_pairs_are_taken_by_a_task_of_pairs(folder):
    pairs = load_data(read(overrides={**setting(folder), "tasks": [{"data": f"json:{folder / 'pairs.jsonl'}"}]}))[0]
    rows = rows_of([lesson(n, ["an oak", f"an elm {n}"], "same") for n in range(40)], pairs, LEARN)
    assert rows.second[:2] == ("an elm 0", "an elm 1")
    assert rows_of(lessons(), pairs, LEARN) is None


def test_lessons_of_which_none_can_judge_teach_nothing(data):
    planning = [each for each in lessons() if part_of_input(each.input) != "test"]
    assert rows_of(planning, data, LEARN) is None
    assert rows_of([], data, LEARN) is None


def keys(config, data, lessons):
    fitted, levels = training_data(data, lessons), config.levels_of(config.tasks[0])
    return [LEVEL.key(config, level, fitted) for level in levels] + [OUTPUTS.key(config, data, LEVELS, "test")]


def test_keys_of_levels_and_old_outputs_do_not_follow_from_lessons_unless_levels_learn(folder, data):
    config = read(overrides=setting(folder))
    before = keys(config, data, None)
    assert keys(config, data, rows_of(lessons(), data, LEARN)) == before
    learnt = keys(config, data, rows_of(lessons(), data, LearnConfig(levels=True)))
    assert learnt[2] == before[2] and not set(learnt[:2]) & set(before[:2])


def test_trained_with_lessons_the_splits_to_plan_and_judge_with_stay(data):
    rows = rows_of(lessons(), data, LearnConfig(levels=True))
    fitted = training_data(data, rows)
    assert len(fitted.split.fit) == len(data.split.fit) + len(rows.split.fit)
    assert [fitted.first[row] for row in fitted.split.fit[len(data.split.fit) :]] == [
        rows.first[row] for row in rows.split.fit
    ]
    assert np.array_equal(fitted.split.profiling, data.split.profiling)
    assert np.array_equal(fitted.split.test, data.split.test)
    assert fitted.first[: len(data.first)] == data.first


def test_pooled_outputs_are_saved_a_quarter_of_the_rows_for_the_test(folder, tmp_path):
    config, store = replace(read(overrides=setting(folder)), learn=LearnConfig(rows=200)), FolderStore(tmp_path)
    saved = [
        StageResult(Outputs, store, key, store.save(key, outputs))
        for key, outputs in (("old", some_outputs()), ("new", some_outputs(count=30, seed=1, data="traffic")))
    ]
    for split, rows in (("profiling", 200), ("test", 50)):
        joined, _ = make_pool(config, "things", split, *saved, silent)
        assert len(joined.labels) == rows


def test_what_a_service_left_is_read_for_its_task(tmp_path, data, folder):
    config = replace(
        read(overrides=setting(folder)), feedback=FeedbackConfig(str(write_outcomes(tmp_path, changed_rows(80))))
    )
    assert len(taught(config, data).first) == 80
    assert taught(config, replace(data, name="others")) is None
    assert taught(read(overrides=setting(folder)), data) is None


def test_labels_alone_say_how_right_and_how_sure_the_levels_are_beside_what_is_promised(tmp_path):
    outcomes = write_outcomes(tmp_path, [("any", "fruit" if n % 4 else "tree") for n in range(80)], keep=False)
    several = [record(n, "tree", level="large", candidate="single") for n in range(100, 140)]
    with (outcomes / LABELS).open("a") as file:
        file.writelines(each.to_line() + "\n" for each in several)
    config = FeedbackConfig(str(outcomes), ",".join(TENANTS))
    first, second = label_rows(config, {"things": {"default": 0.8}})
    assert (first["labels"], first["accuracy"], first["tenants"]) == (80, 0.75, len(TENANTS))
    assert (first["level"], first["confidence"], first["promised"]) == ("small", pytest.approx(0.9), 0.8)
    assert (second["labels"], second["candidate"], second["accuracy"]) == (40, "single", 0.0)
    assert math.isnan(second["promised"])
    assert label_rows(config, {"others": {}}) == label_rows(FeedbackConfig(str(tmp_path / "none")), {}) == []
